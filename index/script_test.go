package index

import (
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "write the actual output into the scripts in testdata/script")

// TestScripts runs testdata/script/*.txt. A script is a sequence of commands, each
// with its arguments, then ---- and the expected output, then an empty line. A
// block is a word; the same word is the same block, wherever it stands. All
// commands also go to the model, which must agree.
//
//	config   [max-blocks=N] [ttl=D]      other bounds
//	capacity pod=N blocks=N              size of a pod's cache
//	register pod=N [at=D] block…
//	promise  pod=N [at=D] as=NAME block…
//	keep     [at=D] NAME                 of a promise; also: undo NAME
//	wipe     pod=N
//	expire   at=D
//	query    [pods=N-M] block…           frames, deepest last
//	list     pod=N                       entries, oldest first, with their last use
//	blocks                               distinct blocks, and entries by pod
//	hot      at=D from=N ratio=F block…  how many leading blocks are worth one more owner
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := script{twin: newTwin(Options{}), names: map[uint64]string{}, regs: map[string]*twinReg{}}
			var actual strings.Builder
			for i, part := range strings.SplitAfter(string(data), "\n\n") {
				head, want, isCommand := strings.Cut(part, "----\n")
				if !isCommand {
					actual.WriteString(part)
					continue
				}
				lines := strings.Split(strings.TrimSpace(head), "\n")
				command := lines[len(lines)-1]
				got := s.run(strings.Fields(command))
				if err := s.compare(); err != nil {
					t.Fatalf("after %q: %v", command, err)
				}
				if got != strings.TrimSpace(want) && !*rewrite {
					t.Errorf("command %d, %s\ngot:\n%s\nwant:\n%s", i+1, command, got, want)
				}
				fmt.Fprintf(&actual, "%s----\n%s\n", head, got)
				if strings.HasSuffix(part, "\n\n") {
					actual.WriteByte('\n')
				}
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(actual.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

type script struct {
	*twin
	names map[uint64]string // of blocks, by spread hash
	regs  map[string]*twinReg
}

type arguments struct {
	named  map[string]string
	blocks []string
}

func (a arguments) number(name string) int {
	n, err := strconv.Atoi(a.named[name])
	if err != nil {
		return -1
	}
	return n
}

func (a arguments) duration(name string) time.Duration {
	d, err := time.ParseDuration(a.named[name])
	if err != nil {
		return 0
	}
	return d
}

func (s *script) chain(words []string) *fakeChain {
	c := &fakeChain{}
	for _, w := range words {
		f := fnv.New64a()
		f.Write([]byte(w))
		c.hashes = append(c.hashes, f.Sum64())
		s.names[spread(f.Sum64())] = w
	}
	return c
}

func (s *script) run(words []string) string {
	a := arguments{named: map[string]string{}}
	for _, w := range words[1:] {
		if name, value, ok := strings.Cut(w, "="); ok {
			a.named[name] = value
		} else {
			a.blocks = append(a.blocks, w)
		}
	}
	pod, at := a.number("pod"), a.duration("at")
	switch words[0] {
	case "config":
		o := Options{MaxBlocks: a.number("max-blocks"), StaleTTL: a.duration("ttl")}
		s.x.Configure(o)
		s.m.configure(o)
		return "ok"
	case "capacity":
		s.x.SetCapacity(uint8(pod), a.number("blocks"))
		s.m.setCapacity(pod, a.number("blocks"))
		return "ok"
	case "register":
		return fmt.Sprintf("%d new", s.register(at, pod, s.chain(a.blocks), nil))
	case "promise":
		r := *s.promise(at, pod, s.chain(a.blocks))
		s.regs[a.named["as"]] = &r
		return fmt.Sprintf("%d new", r.real.Blocks())
	case "undo":
		s.undo(s.regs[a.blocks[0]])
		return "ok"
	case "keep":
		s.keep(max(at, 0), s.regs[a.blocks[0]])
		return "ok"
	case "wipe":
		s.m.wipe(pod)
		return fmt.Sprintf("%d entries", s.x.Wipe(uint8(pod)))
	case "expire":
		s.x.Expire(epoch.Add(at))
		s.m.expire(at)
		return "ok"
	case "query":
		return s.frames(a)
	case "list":
		return s.list(pod)
	case "blocks":
		return s.counts()
	case "hot":
		c := s.chain(a.blocks)
		s.x.Query(&s.q, c, All(Pods))
		ratio, _ := strconv.ParseFloat(a.named["ratio"], 64)
		return strconv.Itoa(s.x.Hot(epoch.Add(at), &s.q, a.number("from"), ratio))
	}
	return "unknown command " + words[0]
}

func (s *script) frames(a arguments) string {
	candidates := All(Pods)
	if from, to, ok := strings.Cut(a.named["pods"], "-"); ok {
		first, _ := strconv.Atoi(from)
		last, _ := strconv.Atoi(to)
		candidates = All(last + 1).AndNot(All(first))
	}
	if err := s.query(s.chain(a.blocks), candidates); err != nil {
		return err.Error()
	}
	var lines []string
	for _, f := range s.q.Frames {
		lines = append(lines, fmt.Sprintf("%d: %v", f.Depth, f.Pods))
	}
	if lines == nil {
		return "nobody"
	}
	return strings.Join(lines, "\n")
}

func (s *script) list(pod int) string {
	var words []string
	for _, e := range listing(s.x, pod) {
		at := (time.Duration(e.tick) << tickShift).Round(time.Second / 10)
		words = append(words, fmt.Sprintf("%s@%v", s.names[e.hash], at))
	}
	if words == nil {
		return "empty"
	}
	return strings.Join(words, " ")
}

func (s *script) counts() string {
	words := []string{strconv.Itoa(s.x.Blocks())}
	for p := range Pods {
		if n := s.x.PodBlocks(uint8(p)); n > 0 {
			words = append(words, fmt.Sprintf("%d:%d", p, n))
		}
	}
	return strings.Join(words, " ")
}
