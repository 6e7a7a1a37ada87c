// Package identity gives the machine its identity: randomness, clock, host name, network address and ids. Clones of one
// template are identical in every bit, so this package sets everything that must differ between machines. The host may
// send the identity again at any time.
package identity

import (
	"encoding/json"
	"net/netip"
	"strings"
	"sync"
	"time"

	"sandbar/guest-agent/internal/console"
	"sandbar/guest-agent/internal/fault"
)

// minEntropy is the number of random bytes that the host must send. They make the random numbers of a clone unique.
const minEntropy = 32

// Request is the identity that the host sends.
type Request struct {
	MachineID  string   `json:"machine_id"`
	Hostname   string   `json:"hostname"`
	Address    string   `json:"address"`
	Gateway    string   `json:"gateway"`
	DNS        []string `json:"dns"`
	MAC        string   `json:"mac"`
	MTU        int      `json:"mtu"`
	TimeUnixMs int64    `json:"time_unix_ms"`
	Entropy    []byte   `json:"entropy"`
	DiskBytes  uint64   `json:"disk_bytes"` // wait until the root device has at least this size
	WasHeld    bool     `json:"was_held"`   // refuse unless all processes are held since the memory snapshot was taken
}

// ParseRequest reads the JSON of a request and checks it.
func ParseRequest(body []byte) (*Request, error) {
	request, ok := readPlain(body)
	if !ok {
		request = new(Request)
		if err := json.Unmarshal(body, request); err != nil {
			return nil, invalid("the body is not an identity: " + err.Error())
		}
	}
	if err := request.check(); err != nil {
		return nil, err
	}
	return request, nil
}

func (r *Request) check() error {
	if r.MachineID == "" || strings.ContainsAny(r.MachineID, " \t\r\n\x00") {
		return invalid("machine_id is missing or not a word")
	}
	if !validHostname(r.Hostname) {
		return invalid("hostname is not a host name")
	}
	if len(r.Entropy) < minEntropy {
		return invalid("entropy is shorter than 32 bytes")
	}
	if r.TimeUnixMs <= 0 {
		return invalid("time_unix_ms is missing")
	}
	for _, server := range r.DNS {
		if _, err := netip.ParseAddr(server); err != nil {
			return invalid("dns has something else than an address")
		}
	}
	_, err := r.network()
	return err
}

func validHostname(name string) bool {
	if name == "" || len(name) > 64 || name[0] == '-' || name[0] == '.' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

// System is the machine that gets the identity.
type System interface {
	RootDevice() string // block device of the root file system; empty while that is not mounted
	MountRoot() error   // does nothing if it is mounted
	LoadSpareModules() error
}

// Identity applies identities to the machine and remembers the last one.
type Identity struct {
	system  System
	mu      sync.Mutex // held while an identity is applied
	link    *nic       // nil: not looked for yet
	lease   *lease     // nil: none
	current machineID
}

// New returns an Identity to which no machine identity has been applied yet.
func New(system System) *Identity {
	return &Identity{system: system}
}

// AwaitsDisk reports whether the machine mounts its root disk only when its identity is applied.
func (i *Identity) AwaitsDisk() bool {
	return i.system.RootDevice() == ""
}

// MachineID returns the id of the machine, or an empty string before Apply has succeeded for the first time.
func (i *Identity) MachineID() string { return i.current.load() }

type step struct {
	name string
	do   func() error
}

// Apply gives the machine the identity of the request. It adds the randomness first, so that no later step can use
// random numbers that another clone uses too. Then it sets the clock, and a bare machine mounts its root disk. A machine
// that got its randomness and exactly these network settings by a lease keeps both. The error names the step that failed.
func (i *Identity) Apply(request *Request) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	network, err := request.network()
	if err != nil {
		return err
	}
	steps := []step{
		{"clock", func() error { return setClock(time.UnixMilli(request.TimeUnixMs)) }},
		{"hostname", func() error { return setHostname(request.Hostname) }},
		{"root disk", i.system.MountRoot},
		{"resize", func() error { return growRoot(i.system.RootDevice(), request.DiskBytes) }},
	}
	if i.MachineID() != "" || !i.lease.covers(request) {
		steps = append([]step{{"entropy", func() error { return mixEntropy(request.Entropy) }}}, steps...)
		steps = append(steps, step{"network", func() error { return i.withLink(i.networkStep(request, network)) }})
	}
	if err := perform(steps); err != nil {
		return err
	}
	for _, err := range writeFiles("", request) {
		console.Log("identity: ", err.Error())
	}
	i.current.store(request.MachineID)
	return nil
}

// IsAnother reports whether the machine has an identity and the request has another one. This happens when the machine
// was made from a memory snapshot of another machine.
func (i *Identity) IsAnother(request *Request) bool {
	current := i.MachineID()
	return current != "" && current != request.MachineID
}

func (i *Identity) networkStep(request *Request, network *network) func(*nic) error {
	switch {
	case i.MachineID() == "" && i.lease == nil:
		return network.begin
	case i.IsAnother(request):
		return func(link *nic) error { return network.replace(link, i.endConnections) }
	}
	return network.keep
}

// endConnections ends the connections of the old addresses. It only logs an error, because the connections then end by
// their own time-outs.
func (i *Identity) endConnections(addresses []netip.Prefix) {
	if !haveSockets(addresses) {
		return
	}
	err := i.system.LoadSpareModules()
	if err == nil {
		err = endConnections(addresses)
	}
	if err != nil {
		console.Log("connections: ", err.Error())
	}
}

// withLink calls use with the machine's network interface. The first call finds the interface and turns IPv6 off on it.
func (i *Identity) withLink(use func(*nic) error) error {
	if i.link == nil {
		link, err := findNIC()
		if err != nil {
			return err
		}
		if err := link.withoutIPv6(); err != nil {
			return err
		}
		i.link = link
	}
	return use(i.link)
}

// perform runs the steps in order and stops at the first error.
func perform(steps []step) error {
	for _, step := range steps {
		if err := step.do(); err != nil {
			return fault.New(fault.Internal, step.name+": "+err.Error())
		}
	}
	return nil
}

func invalid(detail string) error { return fault.New(fault.Validation, detail) }
