// Package testbin finds programs that tests run and that take minutes to build: in
// the folder that CALINIX_TEST_BIN names, else built, once, into the user's cache.
package testbin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// folder is the variable that names the folder with programs.
const folder = "CALINIX_TEST_BIN"

// Program is such a program.
type Program struct {
	// Name is that of its file. The folder has this file, or NAME.xz, or a
	// NAME.tar.xz with the file and what else it needs.
	Name string
	// Version is of what Build makes: that of another version is not used. Without
	// one Build is called each time, and finds out itself what is to be done.
	Version string
	// Build is the command that makes the program, under its name, in dir.
	Build func(dir string) *exec.Cmd
}

// Path returns where the program is, after making it if need be. Of processes that
// ask at a time one makes it.
func (p Program) Path() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "calinix-test")
	if err := os.MkdirAll(cache, 0o750); err != nil {
		return "", err
	}
	unlock, err := Lock(filepath.Join(cache, p.Name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if from := os.Getenv(folder); from != "" {
		return p.given(from, cache)
	}
	build := func(dir string) error {
		if err := run(p.Build(dir)); err != nil {
			return fmt.Errorf("building %s (or set %s to a folder that has it): %w", p.Name, folder, err)
		}
		return nil
	}
	if p.Version != "" {
		return p.installed(filepath.Join(cache, p.Name+"-"+p.Version), build)
	}
	dir := filepath.Join(cache, p.Name+"-built")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	return filepath.Join(dir, p.Name), build(dir)
}

// given returns the program in the folder from, or out of its archive there. An
// archive that has changed is another one.
func (p Program) given(from, cache string) (string, error) {
	if path := filepath.Join(from, p.Name); executable(path) {
		return path, nil
	}
	for _, end := range []string{".xz", ".tar.xz"} {
		archive := filepath.Join(from, p.Name+end)
		info, err := os.Stat(archive)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", folder, err)
		}
		to := filepath.Join(cache, fmt.Sprintf("%s-%d-%d", p.Name, info.Size(), info.ModTime().Unix()))
		return p.installed(to, func(dir string) error { return p.unpack(archive, dir) })
	}
	return "", fmt.Errorf("%s: %s has neither %s nor an archive of it, %[3]s.xz or %[3]s.tar.xz", folder, from, p.Name)
}

// installed returns the program in the folder to, which install fills if it is not
// there. It is filled under another name, so that it is never there by half.
func (p Program) installed(to string, install func(dir string) error) (string, error) {
	path := filepath.Join(to, p.Name)
	if executable(path) {
		return path, nil
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), filepath.Base(to)+".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := install(dir); err != nil {
		return "", err
	}
	if !executable(filepath.Join(dir, p.Name)) {
		return "", fmt.Errorf("making %s: no program of that name came of it", p.Name)
	}
	if err := os.RemoveAll(to); err != nil {
		return "", err
	}
	return path, os.Rename(dir, to)
}

func (p Program) unpack(archive, dir string) error {
	if strings.HasSuffix(archive, ".tar.xz") {
		return run(exec.Command("tar", "-xJf", archive, "-C", dir))
	}
	out, err := os.OpenFile(filepath.Join(dir, p.Name), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	cmd := exec.Command("xz", "-dc", archive)
	cmd.Stdout = out
	return errors.Join(run(cmd), out.Close())
}

// run runs a command that says something only if it fails, or takes long.
func run(cmd *exec.Cmd) error {
	if cmd.Stdout == nil {
		cmd.Stdout = os.Stderr
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%v: %w", cmd.Args, err)
	}
	return nil
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
