package freeze

// Pretended returns a freezer that shuts its gate but freezes nothing, for tests of the agent during a freeze.
func Pretended(gate *Gate) *Freezer {
	return &Freezer{gate: gate, open: func() (subject, error) { return pretended{}, nil }}
}

type pretended struct{}

func (pretended) flush() error  { return nil }
func (pretended) freeze() error { return nil }
func (pretended) thaw() error   { return nil }
func (pretended) close()        {}
