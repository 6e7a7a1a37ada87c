// Package identity gives the machine its identity: randomness, clock, host name, network address and ids. Clones of one
// template are identical in every bit, so this package sets everything that must differ between machines. The host may
// send the identity again at any time.
package identity

import (
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
	SystemID   string   `json:"system_id"` // gives /etc/machine-id; the default is MachineID
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
	request, err := read(body)
	if err != nil {
		return nil, invalid("the body is not an identity: " + err.Error())
	}
	if request.SystemID == "" {
		request.SystemID = request.MachineID
	}
	if err := request.check(); err != nil {
		return nil, err
	}
	return request, nil
}

func (r *Request) check() error {
	if !isWord(r.MachineID) {
		return errNoMachineID
	}
	if !isWord(r.SystemID) {
		return invalid("system_id is not a word")
	}
	if !validHostname(r.Hostname) {
		return invalid("hostname is not a host name")
	}
	if len(r.Entropy) < minEntropy {
		return invalid("entropy is shorter than 32 bytes")
	}
	if r.TimeUnixMs <= 0 {
		return errNoTime
	}
	for _, server := range r.DNS {
		if _, err := netip.ParseAddr(server); err != nil {
			return invalid("dns has something else than an address")
		}
	}
	_, err := r.network()
	return err
}

var (
	errNoMachineID = invalid("machine_id is missing or not a word")
	errNoTime      = invalid("time_unix_ms is missing")
)

func isWord(text string) bool {
	return text != "" && !strings.ContainsAny(text, " \t\r\n\x00")
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

	rootBytes uint64 // size of the root disk that the root file system is known to fill; 0: not known
	isClean   bool   // no secrets of another machine are on the disk, because the warm-up deleted them
}

// New returns an Identity to which no machine identity has been applied yet.
func New(system System) *Identity {
	return &Identity{system: system}
}

// AwaitsDisk reports whether the machine mounts its root disk only when its identity is applied.
func (i *Identity) AwaitsDisk() bool {
	return i.system.RootDevice() == ""
}

// MachineID returns the id of the machine, or an empty string before Apply or Claim has succeeded for the first time.
func (i *Identity) MachineID() string { return i.current.load() }

type step struct {
	name string
	do   func() error
}

// Apply gives the machine the identity of the request. It adds the randomness first, so that no later step can use
// random numbers that another clone uses too. Then it sets the clock, and a bare machine mounts its root disk. What a
// lease has set already, with the same values, stays as it is. The error names the step that failed.
func (i *Identity) Apply(request *Request) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	network, err := request.network()
	if err != nil {
		return err
	}
	isFirst := i.MachineID() == ""
	hasNetwork := isFirst && i.lease.hasNetworkOf(request)
	hasNames := isFirst && i.lease.hasNamesOf(request)
	var steps []step
	if !hasNetwork {
		steps = append(steps, step{"entropy", func() error { return mixEntropy(request.Entropy) }})
	}
	steps = append(steps, i.clockStep(request))
	if !hasNames {
		steps = append(steps, step{"hostname", func() error { return setHostname(request.Hostname) }})
	}
	steps = append(steps, step{"root disk", i.system.MountRoot}, i.resizeStep(request))
	if !hasNetwork {
		steps = append(steps, step{"network", func() error { return i.withLink(i.networkStep(request, network)) }})
	}
	if err := perform(steps); err != nil {
		return err
	}
	if !hasNames || !hasNetwork {
		i.writeFiles(request)
	}
	i.begin(request)
	return nil
}

// begin notes that programs may run from now on.
func (i *Identity) begin(request *Request) {
	i.isClean = false
	i.current.store(request.MachineID)
}

func (i *Identity) clockStep(request *Request) step {
	return step{"clock", func() error { return setClock(time.UnixMilli(request.TimeUnixMs)) }}
}

// resizeStep makes the root file system fill its disk, unless it is known to do so.
func (i *Identity) resizeStep(request *Request) step {
	return step{"resize", func() error {
		if i.rootBytes > 0 && request.DiskBytes <= i.rootBytes {
			return nil
		}
		size, err := growRoot(i.system.RootDevice(), request.DiskBytes)
		if err == nil {
			i.rootBytes = size
		}
		return err
	}}
}

// writeFiles writes the files of the identity, and deletes the secrets of another machine. It only logs errors.
func (i *Identity) writeFiles(request *Request) {
	for _, err := range writeFiles("", request, i.isClean) {
		console.Log("identity: ", err.Error())
	}
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
