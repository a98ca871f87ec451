package calinix_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/calinix/caddy-calinix/internal/testcaddy"
)

// TestSecurity reads the table of docs/security.md and tests each of its claims
// over real sockets: no claim without a test, no test without a claim.
func TestSecurity(t *testing.T) {
	page, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("^\\| `([a-z0-9-]+)` \\| (.+) \\|$")
	tested := map[string]bool{}
	_, rest, found := strings.Cut(string(page), "## The claims\n")
	if !found {
		t.Fatal("the page has no table of claims")
	}
	for line := range strings.Lines(rest) {
		m := row.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		id := m[1]
		test, ok := claims[id]
		switch {
		case !ok:
			t.Errorf("claim %s has no test", id)
			continue
		case tested[id]:
			t.Errorf("claim %s is there twice", id)
		}
		tested[id] = true
		t.Run(id, func(t *testing.T) {
			testcaddy.NoLeaks(t)
			test(t)
		})
	}
	for id := range claims {
		if !tested[id] {
			t.Errorf("the page does not claim %s", id)
		}
	}
}

// claims are the tests of the rows.
var claims = map[string]func(*testing.T){
	"reserved-members":    secureReservedMembers,
	"reserved-carried":    secureCarriedMembers,
	"reserved-ids":        secureRequestIDs,
	"connectors":          secureConnectors,
	"reserved-not-json":   secureReservedInWhatIsNoJSON,
	"reserved-compressed": secureEncodedBodies,
	"unknown-compression": secureUnknownEncodings,
	"single-untouched":    secureSingleUntouched,
	"odd-bodies":          secureOddBodies,
	"routing-headers":     secureRoutingHeaders,
	"routing-trailers":    secureRoutingTrailers,
	"connection-header":   secureConnectionHeader,
	"pod-headers":         securePodHeaders,
	"pinned-mode":         securePinnedMode,
	"h2c-upgrade":         secureH2CUpgrade,
	"injection":           secureInjection,
	"framing":             secureFraming,
	"targets":             secureTargets,
	"body-size":           secureBodySize,
	"bombs":               secureBombs,
	"prompt-cost":         securePromptCost,
	"slow-bodies":         secureSlowBodies,
	"index-flood":         secureIndexFlood,
	"refused-flood":       secureRefusedFlood,
	"session-flood":       secureSessionFlood,
	"collisions":          secureCollisions,
	"salts":               secureSalts,
	"quiet-answers":       secureQuietAnswers,
	"metric-labels":       secureMetricLabels,
	"admin":               secureAdmin,
	"access":              secureAccess,
	"logs":                secureLogs,
	"broken-pods":         secureBrokenPods,
}

// pageLine is the line of docs/security.md that begins so, without its spaces.
func pageLine(t *testing.T, begin string) string {
	t.Helper()
	for line := range strings.Lines(securityPage(t)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, begin) {
			return line
		}
	}
	t.Fatalf("docs/security.md has no line %q", begin)
	return ""
}

// pageBlock is the example of docs/security.md that holds the text.
func pageBlock(t *testing.T, text string) string {
	t.Helper()
	for i, part := range strings.Split(securityPage(t), "```") {
		if body, is := strings.CutPrefix(part, "caddyfile\n"); is && i%2 == 1 && strings.Contains(body, text) {
			return body
		}
	}
	t.Fatalf("docs/security.md has no example with %q", text)
	return ""
}

func securityPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}
