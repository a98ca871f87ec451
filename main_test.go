package calinix_test

import (
	"testing"

	_ "github.com/calinix/caddy-calinix"
	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

func TestMain(m *testing.M) { testcaddy.Main(m) }
