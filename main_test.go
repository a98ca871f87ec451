package calinix_test

import (
	"flag"
	"testing"

	_ "github.com/calinix/caddy-calinix"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// slow asks for the overload tests at full size: 5,000 clients at once.
var slow = flag.Bool("slow", false, "run the tests that take much at their full size")

func TestMain(m *testing.M) { testcaddy.Main(m) }
