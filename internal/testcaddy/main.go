package testcaddy

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/standard" // every test needs a stock Caddy
	"github.com/caddyserver/certmagic"
)

// home is the directory of this test binary: Caddy's data (its local CA, the
// certificates) and configuration. Two processes that share one race for the CA.
var home string

// Main runs the tests of a package that uses this harness:
//
//	func TestMain(m *testing.M) { testcaddy.Main(m) }
//
// It gives Caddy a home of this binary's own, removes that at the end and exits.
func Main(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "testcaddy-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "making a home for Caddy:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	for name, value := range homeEnv(dir) {
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, "making a home for Caddy:", err)
			return 1
		}
	}
	// Caddy has read the environment into these when it was initialised
	caddy.DefaultStorage = &certmagic.FileStorage{Path: caddy.AppDataDir()}
	caddy.ConfigAutosavePath = filepath.Join(caddy.AppConfigDir(), "autosave.json")
	home = dir
	if err := writeCert(); err != nil {
		fmt.Fprintln(os.Stderr, "making a certificate for Caddy:", err)
		return 1
	}
	return m.Run()
}

// homeEnv is the environment of a process whose home is dir.
func homeEnv(dir string) map[string]string {
	return map[string]string{
		"XDG_DATA_HOME":   filepath.Join(dir, "data"),
		"XDG_CONFIG_HOME": filepath.Join(dir, "config"),
		// quic-go writes it to standard error once a process, on most machines
		"QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING": "true",
	}
}
