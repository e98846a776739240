// Bench measures what coffer costs a user, from outside, over real pipes:
//
//	go run ./testdata/bench           a few minutes, a table
//	go run ./testdata/bench -quick    seconds, coarse
//	go run ./testdata/bench -json     for programs
//
// Five servers with twenty tools each stand behind coffer. The floor is a relay
// of bytes in front of one server that has all hundred. All subjects take turns
// in every round and ratios are taken within a round, so that what else the
// machine does hits all of them alike. Every answer is compared with what it has
// to be, byte for byte; one that is wrong ends the run.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// httpRole is the argument that makes this program the server over HTTP.
const httpRole = "http-server"

func main() {
	if len(os.Args) == 2 && os.Args[1] == httpRole {
		if err := httpServer(os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	quick := flags.Bool("quick", false, "take seconds instead of minutes")
	asJSON := flags.Bool("json", false, "print JSON")
	program := flags.String("coffer", "", "the coffer to measure; default: built from this module")
	only := flags.String("only", "", "comma-separated `MEASURES`: "+strings.Join(measureNames(), ", "))
	if err := flags.Parse(args); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "coffer-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	b := &bench{ctx: ctx, folder: folder, coffer: *program, peer: filepath.Join(folder, "peer"), effort: thorough}
	if *quick {
		b.effort = hasty
	}
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	if err := build(ctx, b.peer, "coffer/testdata/bench/peer"); err != nil {
		return err
	}
	if b.coffer == "" {
		b.coffer = filepath.Join(folder, "coffer")
		if err := build(ctx, b.coffer, "coffer"); err != nil {
			return err
		}
	}
	if err := b.run(*only, stderr); err != nil {
		return err
	}
	if *asJSON {
		return b.writeJSON(stdout)
	}
	return b.writeTable(stdout)
}

func build(ctx context.Context, path, pkg string) error {
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, pkg).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return nil
}
