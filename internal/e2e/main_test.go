package e2e

import (
	"testing"

	_ "github.com/calinix/caddy-calinix" // the product, as cmd/caddy has it
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

func TestMain(m *testing.M) { testcaddy.Main(m) }
