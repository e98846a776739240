package upstream

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"coffer/upstream/upstreamtest"
)

// asFakeserver in the environment makes the test binary the command fakeserver.
const asFakeserver = "COFFER_TEST_FAKESERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asFakeserver) != "" {
		os.Exit(upstreamtest.Main(os.Args, os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}
