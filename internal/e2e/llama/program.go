package llama

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// archive is what the folder named by CALINIX_TEST_BIN has of the program.
const archive = "llama-server.tar.xz"

// release names what build.sh builds.
const release = "llama-server-3.21.1"

// Program returns the path of llama-server: unpacked from the archive in the
// folder that CALINIX_TEST_BIN names, else built into the user's cache, where the
// next call finds it. It is for the tests of this package: build.sh is looked for
// where they run.
var Program = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "calinix-ci")
	if err := os.MkdirAll(cache, 0o750); err != nil {
		return "", err
	}
	if bin := os.Getenv("CALINIX_TEST_BIN"); bin != "" {
		return unpacked(filepath.Join(bin, archive), cache)
	}
	return installed(filepath.Join(cache, release), func(dir string) *exec.Cmd {
		return exec.Command("bash", "build.sh", dir)
	})
})

// unpacked returns the program in an archive. One that has changed is another.
func unpacked(from, cache string) (string, error) {
	info, err := os.Stat(from)
	if err != nil {
		return "", fmt.Errorf("CALINIX_TEST_BIN: %w", err)
	}
	to := filepath.Join(cache, fmt.Sprintf("llama-server-%d-%d", info.Size(), info.ModTime().Unix()))
	return installed(to, func(dir string) *exec.Cmd { return exec.Command("tar", "-xJf", from, "-C", dir) })
}

// installed returns the program in the folder, which install fills if it is not
// there. It is filled under another name, so that it is never there by half.
func installed(to string, install func(dir string) *exec.Cmd) (string, error) {
	program := filepath.Join(to, "llama-server")
	if works(program) == nil {
		return program, nil
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), filepath.Base(to)+".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	cmd := install(dir)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%v: %w", cmd.Args, err)
	}
	if err := works(filepath.Join(dir, "llama-server")); err != nil {
		return "", err
	}
	if err := os.Rename(dir, to); err != nil && works(program) != nil { // else another process was faster
		return "", errors.Join(err, os.RemoveAll(to))
	}
	return program, nil
}

// works says what is wrong with the program.
func works(program string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, program, "--version").CombinedOutput(); err != nil {
		return fmt.Errorf("%s --version: %w: %s", program, err, out)
	}
	return nil
}
