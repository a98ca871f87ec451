package testbin

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// home gives the test a cache of its own.
func home(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv(folder, "")
}

// program is one whose making is counted: its file has a line for each time.
func program(version string) Program {
	return Program{Name: "engine", Version: version, Build: func(dir string) *exec.Cmd {
		return exec.Command("sh", "-c", `echo made >>"$0" && chmod +x "$0"`, filepath.Join(dir, "engine"))
	}}
}

// made returns how often the program was made.
func made(t *testing.T, p Program) int {
	t.Helper()
	text, err := os.ReadFile(path(t, p))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "made")
}

func path(t *testing.T, p Program) string {
	t.Helper()
	path, err := p.Path()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBuild: a version is built once, what has none is brought up to date each time.
func TestBuild(t *testing.T) {
	home(t)
	for want := 1; want <= 2; want++ {
		if n := made(t, program("1")); n != 1 {
			t.Errorf("version 1 was built %d times", n)
		}
		if n := made(t, program("")); n != want {
			t.Errorf("built %d times, want %d", n, want)
		}
	}
	if one, two := path(t, program("1")), path(t, program("2")); one == two {
		t.Errorf("two versions at %s", one)
	}
}

// TestBuildFails: what a build that fails leaves is not taken for the program.
func TestBuildFails(t *testing.T) {
	home(t)
	p := program("1")
	for _, script := range []string{`echo half >"$0" && chmod +x "$0" && exit 1`, `exit 0`} {
		p.Build = func(dir string) *exec.Cmd { return exec.Command("sh", "-c", script, filepath.Join(dir, "engine")) }
		if path, err := p.Path(); err == nil {
			t.Errorf("%s: %s", script, path)
		}
	}
	if n := made(t, program("1")); n != 1 {
		t.Errorf("built %d times after that", n)
	}
}

// TestFolder: the folder's program is taken as it stands, and one that is not there
// is not built instead.
func TestFolder(t *testing.T) {
	home(t)
	dir := t.TempDir()
	t.Setenv(folder, dir)
	p := program("1")
	if _, err := p.Path(); err == nil || !strings.Contains(err.Error(), folder) || !strings.Contains(err.Error(), "engine.tar.xz") {
		t.Errorf("an empty folder: %v", err)
	}
	own := filepath.Join(dir, "engine")
	if err := os.WriteFile(own, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := path(t, p); got != own {
		t.Errorf("%s, want %s", got, own)
	}
}
