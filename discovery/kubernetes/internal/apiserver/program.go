package apiserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testbin"
)

// program is the API server, once a test binary. Building ../../testserver takes a
// dozen minutes of CPU time once; the go command finds out whether that is needed.
var program = sync.OnceValues(testbin.Program{Name: "kube-test-apiserver", Build: func(dir string) *exec.Cmd {
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "kube-test-apiserver"), ".")
	cmd.Dir = testserver()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -ldflags=-s")
	return cmd
}}.Path)

// testserver is where the program's source lies, beside this module's. If the go
// command does not say where that is, building says what is wrong.
func testserver() string {
	module, _ := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	return filepath.Join(strings.TrimSpace(string(module)), "testserver")
}

// path returns the binary, or fails the test.
func path(t testing.TB) string {
	t.Helper()
	p, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
