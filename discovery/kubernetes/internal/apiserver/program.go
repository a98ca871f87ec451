package apiserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// program is where the API server's binary is, once a test binary.
var program = sync.OnceValues(findProgram)

// findProgram looks in the folder that CALINIX_TEST_BIN names, for the binary or
// its archive, and else builds ../../testserver, which takes a dozen minutes of CPU
// time once: the result stays in the user's cache.
func findProgram() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "calinix-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(dir, "lock")) // packages are tested side by side
	if err != nil {
		return "", err
	}
	defer unlock()
	if bin := os.Getenv("CALINIX_TEST_BIN"); bin != "" {
		if path := filepath.Join(bin, "kube-test-apiserver"); executable(path) {
			return path, nil
		}
		return unpack(filepath.Join(bin, "kube-test-apiserver.xz"), filepath.Join(dir, "kube-test-apiserver-unpacked"))
	}
	return build(filepath.Join(dir, "kube-test-apiserver"))
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&0o111 != 0
}

// unpack unpacks an archive with xz, unless that was done before.
func unpack(archive, to string) (string, error) {
	packed, err := os.Stat(archive)
	if err != nil {
		return "", fmt.Errorf("CALINIX_TEST_BIN has neither kube-test-apiserver nor its archive: %w", err)
	}
	if unpacked, err := os.Stat(to); err == nil && unpacked.ModTime().After(packed.ModTime()) {
		return to, nil
	}
	out, err := os.OpenFile(to+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return "", err
	}
	cmd := exec.Command("xz", "-dc", archive)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	err = cmd.Run()
	if err2 := out.Close(); err == nil {
		err = err2
	}
	if err != nil {
		return "", fmt.Errorf("unpacking %s: %w", archive, err)
	}
	return to, os.Rename(to+".new", to)
}

// build compiles the program; the go command finds out whether that is needed.
func build(to string) (string, error) {
	_, file, _, _ := runtime.Caller(0)
	cmd := exec.Command("go", "build", "-o", to, ".")
	cmd.Dir = filepath.Join(filepath.Dir(file), "..", "..", "testserver")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -ldflags=-s")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("building the API server (or set CALINIX_TEST_BIN to a folder that has it): %w", err)
	}
	return to, nil
}

// lock holds a file locked until the returned function is called.
func lock(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
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
