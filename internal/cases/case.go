package cases

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Case is one failure case as its file states it. It is read-only after
// reading and may be shared.
type Case struct {
	ID        string   `json:"id"`
	Title     string   `json:"title"`
	Class     string   `json:"class"`
	RootCause string   `json:"root_cause"`
	Half      string   `json:"half"`
	Rank      int      `json:"rank"`
	Severity  int      `json:"severity"`
	Source    []string `json:"source"`
	Symptom   string   `json:"symptom"`
	Given     Given    `json:"given"`
	Steps     []string `json:"steps"`
	Expect    []string `json:"expect"`
	Notes     string   `json:"notes"`

	// Raw are the requests as written, in the order of the file.
	Raw []Raw `json:"requests"`

	// File is the path that the case was read from.
	File string `json:"-"`
}

// Given says in words with which pods and which configuration a case runs.
type Given struct {
	Pods   string `json:"pods"`
	Config string `json:"config"`
}

// Raw is one entry of a case's requests before expansion. Exactly one of Body,
// Base64 and Gen makes the body; with none of them it is empty.
type Raw struct {
	Name    string            `json:"name"`
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	Base64  *string           `json:"body_base64"`
	Gen     *Gen              `json:"body_gen"`
	Repeat  *int              `json:"repeat"`
	Note    string            `json:"note"`

	body    []byte              // of Body or Base64
	tmpl    template            // of Gen.Template
	headers map[string]template // of Gen.HeaderTemplate
}

// Gen describes a generated body.
type Gen struct {
	Template       string            `json:"template"`
	From           *int              `json:"i_from"`
	To             *int              `json:"i_to"`
	Sizes          []int             `json:"pad_body_to_bytes"`
	Repeat         *int              `json:"repeat"` // of the whole list of sizes
	Encode         string            `json:"encode"` // "", gzip or zstd
	Multipart      int               `json:"multipart_bytes"`
	Zeros          int64             `json:"zeros_bytes"`
	Concurrency    int               `json:"concurrency"`
	AbortAfterMs   int               `json:"client_abort_after_ms"`
	Chunked        bool              `json:"chunked"`
	Path           string            `json:"path"`
	HeaderTemplate map[string]string `json:"header_template"`
}

// Root returns the folder of go.mod at or above the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding go.mod: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("finding go.mod: there is none above the working directory")
		}
		dir = parent
	}
}

// Dir returns testdata/cases of the module that the working directory lies in.
func Dir() (string, error) {
	root, err := Root()
	return filepath.Join(root, "testdata", "cases"), err
}

// Read reads and checks the one file. Unknown keys, unknown placeholders and
// templates that could not be expanded are errors that name the file and the
// request.
func Read(file string) (*Case, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading a case: %w", err)
	}
	c := &Case{File: file}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(c); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if c.ID == "" || !strings.HasPrefix(filepath.Base(file), c.ID+"-") {
		return nil, fmt.Errorf("%s: id %q does not begin the file's name", file, c.ID)
	}
	seen := map[string]bool{}
	for k := range c.Raw {
		r := &c.Raw[k]
		if seen[r.Name] {
			return nil, fmt.Errorf("%s: two requests named %q", file, r.Name)
		}
		seen[r.Name] = true
		if err := r.prepare(); err != nil {
			return nil, fmt.Errorf("%s: request %q: %w", file, r.Name, err)
		}
	}
	return c, nil
}

// ReadAll reads every case of a folder, ordered by file name.
func ReadAll(dir string) ([]*Case, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("listing cases: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("listing cases: no *.json in %s", dir)
	}
	all := make([]*Case, len(files))
	for k, f := range files {
		if all[k], err = Read(f); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Open reads the case with this id from the module's testdata/cases and ends
// the test if it is not there or not sound.
func Open(tb testing.TB, id string) *Case {
	tb.Helper()
	dir, err := Dir()
	if err != nil {
		tb.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, id+"-*.json"))
	if err != nil || len(files) != 1 {
		tb.Fatalf("case %s: want one file %s-*.json in %s, got %d (%v)", id, id, dir, len(files), err)
	}
	c, err := Read(files[0])
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// prepare checks the request and compiles what expanding needs.
func (r *Raw) prepare() error {
	if r.Name == "" || r.Method == "" || !strings.HasPrefix(r.Path, "/") {
		return fmt.Errorf("want a name, a method and a path that starts with /")
	}
	if r.Repeat != nil && *r.Repeat < 1 {
		return fmt.Errorf("repeat %d: want at least 1", *r.Repeat)
	}
	ways := 0
	if r.Body != "" {
		ways++
		r.body = []byte(r.Body)
	}
	if r.Base64 != nil {
		ways++
		b, err := base64.StdEncoding.DecodeString(*r.Base64)
		if err != nil {
			return fmt.Errorf("body_base64: %w", err)
		}
		r.body = b
	}
	if r.Gen != nil {
		ways++
		if err := r.prepareGen(r.Gen); err != nil {
			return fmt.Errorf("body_gen: %w", err)
		}
	}
	if ways > 1 {
		return fmt.Errorf("more than one of body, body_base64 and body_gen")
	}
	return nil
}

func (r *Raw) prepareGen(g *Gen) (err error) {
	switch g.Encode {
	case "", "gzip", "zstd":
	default:
		return fmt.Errorf("encode %q: want gzip or zstd", g.Encode)
	}
	if g.Zeros < 0 || g.Multipart < 0 {
		return fmt.Errorf("negative number of bytes")
	}
	if g.Zeros > 0 && g.Encode == "" {
		return fmt.Errorf("zeros_bytes needs encode: what it tests is compression")
	}
	if r.tmpl, err = compile(g.Template); err != nil {
		return err
	}
	if len(g.Sizes) > 0 {
		if r.tmpl.pads == 0 || r.tmpl.numbered {
			return fmt.Errorf("pad_body_to_bytes needs {{pad}} and no other placeholder")
		}
		for _, size := range g.Sizes {
			if size < r.tmpl.fixed {
				return fmt.Errorf("pad_body_to_bytes %d: the template alone has %d", size, r.tmpl.fixed)
			}
		}
	} else if r.tmpl.pads > 0 {
		return fmt.Errorf("{{pad}} needs pad_body_to_bytes")
	}
	r.headers = make(map[string]template, len(g.HeaderTemplate))
	for k, v := range g.HeaderTemplate {
		t, err := compile(v)
		if err != nil {
			return fmt.Errorf("header_template %s: %w", k, err)
		}
		if t.pads > 0 {
			return fmt.Errorf("header_template %s: no {{pad}} in a header", k)
		}
		r.headers[k] = t
	}
	return nil
}
