package cases_test

import (
	"flag"
	"testing"

	_ "github.com/calinix/caddy-calinix" // the product, as cmd/caddy has it
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// slow asks for the cases in full: 75 s of silence (BR-20), 20,000 requests under
// the race detector (BR-16), 30,000 prompts (BR-17).
var slow = flag.Bool("slow", false, "run the cases that take minutes in full")

func TestMain(m *testing.M) { testcaddy.Main(m) }
