// Command vcenter plays a vCenter for tests: govmomi's simulator behind the
// REST APIs of a real one. It prints one line of JSON when it is ready, and
// ends with its standard input.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"agent-forge.containeroo.ch/lab/vcenter/internal/front"
)

func main() {
	log.SetOutput(os.Stderr)
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	o, err := parseOptions(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vcenter:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, ended := context.WithCancel(ctx)
	go func() {
		// The parent has the other end, which is closed when the parent ends.
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended()
	}()
	if err := serve(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "vcenter:", err)
		os.Exit(1)
	}
}

// serve runs the vCenter until ctx ends.
func serve(ctx context.Context, o options, ready io.Writer) error {
	f, err := front.New(o.config)
	if err != nil {
		return err
	}
	defer f.Close()
	l, line, err := listen(o)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: f, ErrorLog: log.Default(), ReadHeaderTimeout: 30 * time.Second}
	// HTTP/1.1 only, so that each dropped connection is one request.
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	if _, err := fmt.Fprintln(ready, line); err != nil {
		_ = server.Close()
		return err
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	if err := server.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-failed
	return nil
}
