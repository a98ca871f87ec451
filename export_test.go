package calinix

// References returns how many configurations hold the state of a balancer; 0 if
// there is none of that name.
func References(name string) int {
	n, _ := balancers.References(name)
	return n
}
