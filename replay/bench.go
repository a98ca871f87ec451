package replay

// bench does runs that are known by name.
type bench struct {
	names   []string
	runs    []Run
	results map[string]*Result
	done    int // runs and searches before those under way
	told    func(done int)
}

func newBench(told func(done int)) *bench {
	return &bench{results: map[string]*Result{}, told: told}
}

// plan adds a run.
func (b *bench) plan(name string, r Run) {
	b.names, b.runs = append(b.names, name), append(b.runs, r)
}

// do does what is planned.
func (b *bench) do() error {
	results, err := All(b.runs, b.tell)
	if err != nil {
		return err
	}
	for i, name := range b.names {
		b.results[name] = results[i]
	}
	b.done += len(b.runs)
	b.names, b.runs = nil, nil
	return nil
}

// of returns the result of a run that was done.
func (b *bench) of(name string) *Result { return b.results[name] }

func (b *bench) tell(done int) {
	if b.told != nil {
		b.told(b.done + done)
	}
}

// sustained finds the highest rate of each policy.
func (b *bench) sustained(t *Trace, goal float64, policies ...string) ([]float64, error) {
	rates := make([]float64, len(policies))
	err := each(len(policies), b.tell, func(i int) (err error) {
		rates[i], err = gateRun(t, named(policies[i]), 0).Sustained(goal)
		return err
	})
	b.done += len(policies)
	return rates, err
}
