package identity

import "sync/atomic"

// machineID holds the id of the machine. It is atomic, because requests read it while another request sets the
// identity.
type machineID struct{ value atomic.Pointer[string] }

func (m *machineID) load() string {
	if id := m.value.Load(); id != nil {
		return *id
	}
	return ""
}

func (m *machineID) store(id string) { m.value.Store(&id) }
