package identity

import "sync/atomic"

// machineID is read by every request while an identity may be being applied.
type machineID struct{ value atomic.Pointer[string] }

func (m *machineID) load() string {
	if id := m.value.Load(); id != nil {
		return *id
	}
	return ""
}

func (m *machineID) store(id string) { m.value.Store(&id) }
