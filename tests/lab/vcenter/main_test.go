package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// start serves with these flags until the test ends; stop waits for the end.
func start(t *testing.T, args ...string) (line launch, stop func()) {
	t.Helper()
	o, err := parseOptions(args)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := serve(ctx, o, writer)
		_ = writer.CloseWithError(err)
		ended <- err
	}()
	text, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &line); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return line, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestLaunchLine(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	line, stop := start(t)
	if !strings.HasPrefix(line.URL, "https://127.0.0.1:") || len(line.Thumbprint) != 64 {
		t.Errorf("line: %+v", line)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(line.CAPem)) {
		t.Fatal("no certificate")
	}
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	res, err := client.Get(line.URL + "/sdk/vim25/8.0.1.0/ServiceInstance/ServiceInstance/content")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	sum := sha256.Sum256(res.TLS.PeerCertificates[0].Raw)
	if res.StatusCode != 200 || hex.EncodeToString(sum[:]) != line.Thumbprint {
		t.Errorf("status %d, thumbprint %x", res.StatusCode, sum)
	}
	files, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	if err != nil || len(files) == 0 {
		t.Errorf("no temporary files while it runs: %v", err)
	}
	client.CloseIdleConnections()
	stop()
	if files, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(files) != 0 {
		t.Errorf("left behind: %v", files)
	}
}

func TestPlainHTTP(t *testing.T) {
	line, stop := start(t, "--tls=false", "--hosts=1", "--pod-datastores=0", "--create-delay=3s")
	defer stop()
	if !strings.HasPrefix(line.URL, "http://127.0.0.1:") || line.Thumbprint != "" || line.CAPem != "" {
		t.Errorf("line: %+v", line)
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--api-release=7.0"}, {"--username="}, {"--create-delay=soon"}, {"extra"},
	} {
		if _, err := parseOptions(args); err == nil {
			t.Errorf("%v: accepted", args)
		}
	}
	o, err := parseOptions([]string{"--listen=0.0.0.0:0"})
	if err != nil {
		t.Fatal(err)
	}
	if l, _, err := listen(o); err == nil {
		_ = l.Close()
		t.Error("listens beyond loopback")
	}
	o, err = parseOptions([]string{"--destroy-delay=15s", "--power-on-delay=2s"})
	if err != nil || o.config.Delays["destroy"] != 15*time.Second || o.config.Delays["powerOn"] != 2*time.Second {
		t.Errorf("delays: %+v %v", o.config.Delays, err)
	}
}
