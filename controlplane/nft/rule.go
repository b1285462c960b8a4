package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Registers of the kernel. The first has 16 bytes. The registers from small on have four bytes each, and share memory
// with the larger ones: small is the first four bytes of first, small+1 the next four.
const (
	first = unix.NFT_REG_1
	small = unix.NFT_REG32_00
)

// statement parses a statement at the beginning of the words, and returns the number of its words; 0 if the words begin
// with another statement.
type statement func(t *transaction, words []string) (took int, does []expr.Any, err error)

// statements are all supported statements of rules.
var statements = []statement{bits, setMark, masquerade, lookup, address, protocol, destination, balance, reject, count, final}

// addRule adds a rule to a chain.
func (t *transaction) addRule(chain string, words []string) error {
	var all []expr.Any
	for len(words) > 0 {
		took := 0
		for _, s := range statements {
			n, does, err := s(t, words)
			if err != nil {
				return fmt.Errorf("rule of %s: %w", chain, err)
			}
			if n > 0 {
				all, took = append(all, does...), n
				break
			}
		}
		if took == 0 {
			return fmt.Errorf("rule of %s: %q is not understood", chain, strings.Join(words, " "))
		}
		words = words[took:]
	}
	t.conn.AddRule(&nftables.Rule{Table: t.table, Chain: t.chain(chain), Exprs: all})
	return nil
}

// begins reports whether words begin with the pattern. A star in the pattern stands for any word.
func begins(words []string, pattern string) bool {
	want := strings.Fields(pattern)
	return len(words) >= len(want) && slices.EqualFunc(words[:len(want)], want, func(have, want string) bool { return want == "*" || have == want })
}

func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// anyOf matches packets whose first register has at least one of these bits.
func anyOf(mask uint32) []expr.Any {
	return []expr.Any{
		&expr.Bitwise{SourceRegister: first, DestRegister: first, Len: 4, Mask: native(mask), Xor: native(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: first, Data: native(0)},
	}
}

// bits parses "ct state new", "ct status dnat", "mark and 0x4000 != 0".
func bits(_ *transaction, words []string) (int, []expr.Any, error) {
	const translated = 1 << 5 // IPS_DST_NAT
	switch {
	case begins(words, "ct state new"):
		return 3, append([]expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: first}}, anyOf(expr.CtStateBitNEW)...), nil
	case begins(words, "ct status dnat"):
		return 3, append([]expr.Any{&expr.Ct{Key: expr.CtKeySTATUS, Register: first}}, anyOf(translated)...), nil
	case begins(words, "mark and * != 0"):
		mask, err := strconv.ParseUint(words[2], 0, 32)
		return 5, append([]expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: first}}, anyOf(uint32(mask))...), err
	}
	return 0, nil, nil
}

// setMark parses "mark set mark or 0x4000", "mark set mark xor 0x4000".
func setMark(_ *transaction, words []string) (int, []expr.Any, error) {
	if !begins(words, "mark set mark * *") || (words[3] != "or" && words[3] != "xor") {
		return 0, nil, nil
	}
	n, err := strconv.ParseUint(words[4], 0, 32)
	keep := ^uint32(0)
	if words[3] == "or" {
		keep = ^uint32(n)
	}
	return 5, []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: first},
		&expr.Bitwise{SourceRegister: first, DestRegister: first, Len: 4, Mask: native(keep), Xor: native(uint32(n))},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: first},
	}, err
}

func masquerade(_ *transaction, words []string) (int, []expr.Any, error) {
	if !begins(words, "masquerade fully-random") {
		return 0, nil, nil
	}
	return 2, []expr.Any{&expr.Masq{FullyRandom: true}}, nil
}

// field loads a field of a packet: "ip saddr", "ip daddr", "meta l4proto", "th dport".
func field(words []string, into uint32) (expr.Any, bool) {
	switch {
	case begins(words, "ip saddr"):
		return &expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4, DestRegister: into}, true
	case begins(words, "ip daddr"):
		return &expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4, DestRegister: into}, true
	case begins(words, "meta l4proto"):
		return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: into}, true
	case begins(words, "th dport"):
		return &expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2, DestRegister: into}, true
	}
	return nil, false
}

// lookup parses "ip daddr . meta l4proto . th dport vmap @map", "ip daddr @set". Each field takes a register of four
// bytes.
func lookup(_ *transaction, words []string) (int, []expr.Any, error) {
	var loads []expr.Any
	at := 0
	for into := uint32(first); ; into = small + uint32(len(loads)) { //nolint:gosec // There are no more than four.
		load, ok := field(words[at:], into)
		if !ok {
			return 0, nil, nil
		}
		loads, at = append(loads, load), at+2
		if !begins(words[at:], ".") {
			break
		}
		at++
	}
	find := &expr.Lookup{SourceRegister: first}
	if begins(words[at:], "vmap") {
		find.IsDestRegSet, at = true, at+1 // The register of verdicts, 0.
	}
	if at == len(words) || !strings.HasPrefix(words[at], "@") {
		return 0, nil, nil
	}
	find.SetName = words[at][1:]
	return at + 1, append(loads, find), nil
}

// address parses "ip saddr 10.0.0.0/8", "ip daddr != 127.0.0.0/8", "ip daddr { 10.96.0.0/16 }".
func address(_ *transaction, words []string) (int, []expr.Any, error) {
	load, ok := field(words, first)
	if !ok || words[0] != "ip" || len(words) < 3 {
		return 0, nil, nil
	}
	op, at := expr.CmpOpEq, 2
	if words[2] == "!=" && len(words) > 3 {
		op, at = expr.CmpOpNeq, 3
	}
	took := at + 1
	if begins(words[at:], "{ * }") {
		at, took = at+1, at+3
	}
	prefix, err := netip.ParsePrefix(words[at])
	if err != nil || !prefix.Addr().Is4() {
		return 0, nil, fmt.Errorf("want one prefix of IPv4, got %q", words[at:])
	}
	mask := binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-prefix.Bits()))
	return took, []expr.Any{
		load,
		&expr.Bitwise{SourceRegister: first, DestRegister: first, Len: 4, Mask: mask, Xor: native(0)},
		&expr.Cmp{Op: op, Register: first, Data: prefix.Masked().Addr().AsSlice()},
	}, nil
}

// protocol parses "meta l4proto tcp".
func protocol(_ *transaction, words []string) (int, []expr.Any, error) {
	if !begins(words, "meta l4proto *") {
		return 0, nil, nil
	}
	p, ok := protocols[words[2]]
	if !ok {
		return 0, nil, nil
	}
	return 3, []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: first}, &expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: []byte{p}}}, nil
}

// destination parses "dnat to 10.244.0.2:9443".
func destination(_ *transaction, words []string) (int, []expr.Any, error) {
	if !begins(words, "dnat to *") {
		return 0, nil, nil
	}
	to, err := netip.ParseAddrPort(words[2])
	if err != nil || !to.Addr().Is4() {
		return 0, nil, fmt.Errorf("want an address of IPv4 and a port, got %q", words[2])
	}
	return 3, []expr.Any{
		&expr.Immediate{Register: first, Data: to.Addr().AsSlice()},
		&expr.Immediate{Register: small + 1, Data: binary.BigEndian.AppendUint16(nil, to.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: first, RegProtoMin: small + 1},
	}, nil
}

// balance parses "dnat ip addr . port to numgen random mod 2 map { 0 : 10.244.0.2 . 9443 , 1 : 10.244.0.3 . 9443 }".
func balance(t *transaction, words []string) (int, []expr.Any, error) {
	if !begins(words, "dnat ip addr . port to numgen random mod * map {") {
		return 0, nil, nil
	}
	end := slices.Index(words, "}")
	n, err := strconv.ParseUint(words[9], 10, 32)
	if end < 0 || err != nil {
		return 0, nil, fmt.Errorf("%q is not understood", words)
	}
	to, err := nftables.ConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService)
	if err != nil {
		return 0, nil, err
	}
	var elements []nftables.SetElement
	for one := range strings.SplitSeq(strings.Join(words[12:end], " "), " , ") {
		at, endpoint, _ := strings.Cut(one, " : ")
		i, err := strconv.ParseUint(at, 10, 32)
		if err != nil {
			return 0, nil, fmt.Errorf("endpoint %q: %w", one, err)
		}
		data, err := values(endpoint)
		if err != nil {
			return 0, nil, fmt.Errorf("endpoint %q: %w", one, err)
		}
		elements = append(elements, nftables.SetElement{Key: native(uint32(i)), Val: data})
	}
	set := &nftables.Set{Table: t.table, Anonymous: true, Constant: true, IsMap: true, KeyType: nftables.TypeInteger, DataType: to}
	if err := t.conn.AddSet(set, elements); err != nil {
		return 0, nil, err
	}
	return end + 1, []expr.Any{
		&expr.Numgen{Register: first, Modulus: uint32(n), Type: unix.NFT_NG_RANDOM},
		&expr.Lookup{SourceRegister: first, DestRegister: first, IsDestRegSet: true, SetName: set.Name, SetID: set.ID},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: first, RegProtoMin: small + 1},
	}, nil
}

// reject parses "reject", which answers that the port is unreachable.
func reject(_ *transaction, words []string) (int, []expr.Any, error) {
	const unreachablePort = 3 // An ICMP code.
	if !begins(words, "reject") {
		return 0, nil, nil
	}
	return 1, []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: unreachablePort}}, nil
}

// count parses `counter name "rejected"`.
func count(_ *transaction, words []string) (int, []expr.Any, error) {
	if !begins(words, "counter name *") {
		return 0, nil, nil
	}
	return 3, []expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: strings.Trim(words[2], `"`)}}, nil
}

// final parses "jump CHAIN", "goto CHAIN", "drop".
func final(_ *transaction, words []string) (int, []expr.Any, error) {
	for n := 1; n <= min(2, len(words)); n++ {
		if v, err := verdict(words[:n]); err == nil {
			return n, []expr.Any{v}, nil
		}
	}
	return 0, nil, nil
}
