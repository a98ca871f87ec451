//go:build llama

package llama

import (
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

func TestMain(m *testing.M) { testcaddy.Main(m) }
