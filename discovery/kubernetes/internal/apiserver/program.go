package apiserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testbin"
)

// program is the API server, once a test binary. Building ../../testserver takes a
// dozen minutes of CPU time once; the go command finds out whether that is needed.
var program = sync.OnceValues(testbin.Program{Name: "kube-test-apiserver", Build: func(dir string) *exec.Cmd {
	_, file, _, _ := runtime.Caller(0)
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "kube-test-apiserver"), ".")
	cmd.Dir = filepath.Join(filepath.Dir(file), "..", "..", "testserver")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -ldflags=-s")
	return cmd
}}.Path)

// path returns the binary, or fails the test.
func path(t testing.TB) string {
	t.Helper()
	p, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
