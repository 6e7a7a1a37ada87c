package identity

// Assumed returns the Identity of a machine with the given id. It applies nothing to the computer that it runs on, so
// tests can use it.
func Assumed(machineID string) *Identity {
	i := New("", func() error { return nil })
	i.current.store(machineID)
	return i
}
