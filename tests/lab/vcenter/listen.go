package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// launch is the line with the address of the vCenter and the certificate to
// trust.
type launch struct {
	URL        string `json:"url"`
	Thumbprint string `json:"thumbprint"`
	CAPem      string `json:"caPem"`
}

// listen opens the port and returns it with the launch line.
func listen(o options) (net.Listener, string, error) {
	host, _, err := net.SplitHostPort(o.listen)
	if err != nil {
		return nil, "", fmt.Errorf("--listen: %w", err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, "", fmt.Errorf("--listen %s: only loopback addresses, the admin endpoint needs no password", o.listen)
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return nil, "", err
	}
	out := launch{URL: "http://" + l.Addr().String()}
	if o.tls {
		cert, err := selfSigned(net.ParseIP(host))
		if err != nil {
			_ = l.Close()
			return nil, "", err
		}
		sum := sha256.Sum256(cert.Certificate[0])
		out.URL = "https://" + l.Addr().String()
		out.Thumbprint = hex.EncodeToString(sum[:])
		out.CAPem = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))
		l = tls.NewListener(l, &tls.Config{
			Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		})
	}
	line, err := json.Marshal(out)
	return l, string(line), err
}

// selfSigned makes an end-entity certificate that is its own issuer, like
// vCenter installations without a CA.
func selfSigned(ip net.IP) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, err
	}
	template := x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "vcenter.lab", Organization: []string{"lab"}},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(30 * 24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{ip},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
