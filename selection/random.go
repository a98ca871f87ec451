package selection

import "github.com/calinix/caddy-calinix/index"

// topRandom returns all candidates; the order byKey with a fresh random number
// as the key does the rest, and gives each the same chance. Whoever draws the
// numbers can repeat a run by drawing the same ones again.
func topRandom(c *index.Bitmap) index.Bitmap { return *c }
