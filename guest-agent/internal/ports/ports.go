// Package ports shows the host which TCP ports of the machine are open, and connects to them. The host usually connects
// to the machine's address itself. It uses ports.connect where it cannot: without root, and for programs that listen on
// the loopback address only.
package ports

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sandbar/guest-agent/internal/calls"
	"sandbar/guest-agent/internal/fault"
)

// Ports serves the guest calls and streams of ports.
type Ports struct{}

// Calls returns the guest calls by name.
func (p Ports) Calls() map[string]calls.Call {
	return map[string]calls.Call{"ports.list": list}
}

// Streams returns the guest streams by name.
func (p Ports) Streams() map[string]calls.Stream {
	return map[string]calls.Stream{"ports.connect": connect}
}

// openPort is one entry of the answer to ports.list.
type openPort struct {
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"`
	// Process is the name of the process that listens, or null when it was not found.
	Process *string `json:"process"`
}

// maxNamed is how many open ports an error names.
const maxNamed = 10

func list(ctx context.Context, params []byte) (any, error) {
	if err := json.Unmarshal(params, &struct{}{}); err != nil {
		return nil, fault.New(fault.Validation, "the parameters must be a JSON object")
	}
	return map[string]any{"ports": openPorts(ctx)}, nil
}

// openPorts returns the ports on which programs accept TCP connections, in the order of their numbers. A port may have
// several sockets, such as one for IPv4 and one for IPv6.
func openPorts(ctx context.Context) []openPort {
	listeners := readListeners(ctx)
	owners := findOwners(ctx, listeners)
	byPort := map[uint16]openPort{}
	for _, l := range listeners {
		entry, known := byPort[l.address.Port()]
		if !known {
			entry = openPort{Port: l.address.Port(), Protocol: "tcp"}
		}
		if name, found := owners[l.inode]; found && entry.Process == nil {
			entry.Process = &name
		}
		byPort[entry.Port] = entry
	}
	all := slices.SortedFunc(maps.Values(byPort), func(a, b openPort) int { return cmp.Compare(a.Port, b.Port) })
	if all == nil {
		return []openPort{}
	}
	return all
}

// notOpen returns the error for a port on which nothing listens. It names the ports that are open.
func notOpen(ctx context.Context, port uint16) error {
	return fault.New(fault.PortNotOpen, "Nothing in the machine listens on port "+strconv.Itoa(int(port))+". "+describe(openPorts(ctx)))
}

func describe(open []openPort) string {
	if len(open) == 0 {
		return "No port is open."
	}
	var names []string
	for _, entry := range open[:min(len(open), maxNamed)] {
		name := strconv.Itoa(int(entry.Port))
		if entry.Process != nil {
			name += " (" + *entry.Process + ")"
		}
		names = append(names, name)
	}
	if len(open) > maxNamed {
		names = append(names, "and "+strconv.Itoa(len(open)-maxNamed)+" more")
	}
	return "Open ports: " + strings.Join(names, ", ") + "."
}
