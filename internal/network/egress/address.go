package egress

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/net/idna"
)

var (
	errLinkLocal = errors.New("it is link-local, where clouds serve instance metadata")
	errClosed    = errors.New("it is in a network of --closed-networks")
	errLoopback  = errors.New("it is a loopback address, which is the controller's own host")
)

// metadata are the other addresses at which clouds serve instance metadata.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/32"),          // AWS, also its credentials of pods
	netip.MustParsePrefix("fd20:ce::254/128"),       // Google
	netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), // Oracle
	netip.MustParsePrefix("192.0.0.192/32"),         // Oracle
	netip.MustParsePrefix("168.63.129.16/32"),       // Azure
	netip.MustParsePrefix("100.100.100.200/32"),     // Alibaba
	netip.MustParsePrefix("fd00:42::42/128"),        // Scaleway
}

// translations are the IPv6 addresses that networks translate to IPv4 addresses: which bytes are those of the latter.
var translations = []struct {
	prefix netip.Prefix
	bytes  [4]int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), [4]int{12, 13, 14, 15}},    // NAT64, RFC 6052
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{12, 13, 14, 15}},  // NAT64 of a network, RFC 8215, as /96
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{9, 10, 11, 12}},   // as /64
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{7, 9, 10, 11}},    // as /56
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{6, 7, 9, 10}},     // as /48
	{netip.MustParsePrefix("::/96"), [4]int{12, 13, 14, 15}},           // RFC 4291, 2.5.5.1
	{netip.MustParsePrefix("::ffff:0:0:0/96"), [4]int{12, 13, 14, 15}}, // RFC 7915
	{netip.MustParsePrefix("2002::/16"), [4]int{2, 3, 4, 5}},           // 6to4
}

// checkAddress is called after name resolution, so that no DNS name circumvents it.
func (p *Policy) checkAddress(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return p.checkIP(at.Addr())
}

// CheckHost returns a fault if a host is written as an address that the policy refuses, in any form that a resolver
// accepts. Whoever connects through a proxy must call it: the proxy would connect to the address.
func (p *Policy) CheckHost(host string) error {
	ip, ok := literal(host)
	if !ok {
		return nil
	}
	if err := p.checkIP(ip); err != nil {
		return explainNetwork(err, "host '"+host+"'")
	}
	return nil
}

// literal returns the address that a host is written as: also with characters that are equivalent to digits and dots, a
// dot at the end, or numbers as of inet_aton, such as 0xa9fea9fe and 169.254.43518.
func literal(host string) (netip.Addr, bool) {
	if ascii, err := idna.Lookup.ToASCII(host); err == nil {
		host = ascii
	}
	host = strings.TrimSuffix(host, ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip, true
	}
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	value := uint64(0)
	for i, part := range parts {
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (5 - len(parts))
		}
		n, err := strconv.ParseUint(part, 0, bits)
		if err != nil {
			return netip.Addr{}, false
		}
		value = value<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}), true
}

// checkIP also checks the IPv4 addresses that an IPv6 address may be translated to.
func (p *Policy) checkIP(ip netip.Addr) error {
	for _, each := range formsOf(ip) {
		if err := p.checkOne(each); err != nil {
			return err
		}
	}
	return nil
}

// formsOf returns an address, and the IPv4 addresses that networks may translate it to.
func formsOf(ip netip.Addr) []netip.Addr {
	ip = ip.Unmap().WithZone("")
	all := []netip.Addr{ip}
	if ip.Is4() {
		return all
	}
	b := ip.As16()
	for _, t := range translations {
		if t.prefix.Contains(ip) {
			all = append(all, netip.AddrFrom4([4]byte{b[t.bytes[0]], b[t.bytes[1]], b[t.bytes[2]], b[t.bytes[3]]}))
		}
	}
	return all
}

func (p *Policy) checkOne(ip netip.Addr) error {
	switch {
	case p.RefuseLinkLocal && linkLocal(ip):
		return errLinkLocal
	case p.RefuseLoopback && (ip.IsLoopback() || ip.IsUnspecified()):
		return errLoopback
	case slices.ContainsFunc(p.Closed, func(n netip.Prefix) bool { return n.Contains(ip) }):
		return errClosed
	}
	return nil
}

func linkLocal(ip netip.Addr) bool {
	return ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() ||
		slices.ContainsFunc(metadata, func(p netip.Prefix) bool { return p.Contains(ip) })
}
