package selection

import "github.com/calinix/caddy-calinix/index"

// topRoundRobin returns all candidates; the order byTurn does the rest.
func topRoundRobin(c *index.Bitmap) index.Bitmap { return *c }
