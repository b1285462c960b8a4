package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// transaction collects changes that the kernel applies at once.
type transaction struct {
	conn  *nftables.Conn
	table *nftables.Table
}

// comment matches a comment at the end of a statement or of an element's key.
var comment = regexp.MustCompile(` comment "[^"]*"( ;)?`)

// add adds one line, such as "add chain ip kube-proxy services".
func (t *transaction) add(line string) error {
	words := strings.Fields(comment.ReplaceAllString(line, ""))
	if len(words) < 4 || words[2] != "ip" {
		return fmt.Errorf("want VERB KIND ip TABLE, got %q", line)
	}
	t.table = &nftables.Table{Name: words[3], Family: nftables.TableFamilyIPv4}
	what, words := words[0]+" "+words[1], words[4:]
	if what == "add table" {
		t.conn.AddTable(t.table)
		return nil
	}
	if len(words) == 0 {
		return fmt.Errorf("%s: want a name", what)
	}
	name, words := words[0], words[1:]
	switch what {
	case "add chain":
		return t.addChain(name, words)
	case "flush chain":
		t.conn.FlushChain(t.chain(name))
	case "delete chain":
		t.conn.DelChain(t.chain(name))
	case "add set", "add map":
		return t.addSet(name, words)
	case "flush set", "flush map":
		t.conn.FlushSet(&nftables.Set{Table: t.table, Name: name})
	case "delete set", "delete map":
		t.conn.DelSet(&nftables.Set{Table: t.table, Name: name})
	case "add element", "delete element":
		return t.element(what, name, words)
	case "add counter":
		t.conn.AddObj(&nftables.CounterObj{Table: t.table, Name: name})
	case "delete counter":
		t.conn.DeleteObject(&nftables.CounterObj{Table: t.table, Name: name})
	case "add rule":
		return t.addRule(name, words)
	default:
		return fmt.Errorf("%s is not understood", what)
	}
	return nil
}

func (t *transaction) chain(name string) *nftables.Chain {
	return &nftables.Chain{Table: t.table, Name: name}
}

var hooks = map[string]*nftables.ChainHook{
	"prerouting": nftables.ChainHookPrerouting, "input": nftables.ChainHookInput, "forward": nftables.ChainHookForward,
	"output": nftables.ChainHookOutput, "postrouting": nftables.ChainHookPostrouting,
}

// addChain adds a chain, with the optional properties in braces: "{ type nat hook output priority -100 ; }".
func (t *transaction) addChain(name string, words []string) error {
	c := t.chain(name)
	if len(words) > 2 {
		if len(words) != 9 || words[1] != "type" || words[3] != "hook" || words[5] != "priority" {
			return fmt.Errorf("chain %s: %q is not understood", name, words)
		}
		priority, err := strconv.Atoi(words[6])
		if err != nil {
			return fmt.Errorf("chain %s: %w", name, err)
		}
		c.Type, c.Hooknum, c.Priority = nftables.ChainType(words[2]), hooks[words[4]], nftables.ChainPriorityRef(nftables.ChainPriority(priority)) //nolint:gosec // It is small.
		if c.Hooknum == nil {
			return fmt.Errorf("chain %s: hook %q is not understood", name, words[4])
		}
	}
	t.conn.AddChain(c)
	return nil
}

var types = map[string]nftables.SetDatatype{
	"ipv4_addr": nftables.TypeIPAddr, "inet_proto": nftables.TypeInetProto, "inet_service": nftables.TypeInetService, "verdict": nftables.TypeVerdict,
}

// addSet adds a set or map with the type in braces: "{ type ipv4_addr . inet_proto : verdict ; }".
func (t *transaction) addSet(name string, words []string) error {
	if len(words) < 5 || words[1] != "type" || words[len(words)-2] != ";" {
		return fmt.Errorf("set %s: %q is not understood", name, words)
	}
	key, value, isMap := strings.Cut(strings.Join(words[2:len(words)-2], " "), " : ")
	s := &nftables.Set{Table: t.table, Name: name, IsMap: isMap, DataType: types[value]}
	var err error
	if s.KeyType, s.Concatenation, err = typeOf(key); err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	if isMap && value != "verdict" {
		return fmt.Errorf("map %s: values of type %q are not understood", name, value)
	}
	return t.conn.AddSet(s, nil)
}

// typeOf returns the type of a key with one or several parts.
func typeOf(text string) (all nftables.SetDatatype, several bool, err error) {
	var parts []nftables.SetDatatype
	for name := range strings.SplitSeq(text, " . ") {
		part, ok := types[name]
		if !ok {
			return all, false, fmt.Errorf("type %q is not understood", name)
		}
		parts = append(parts, part)
	}
	if len(parts) == 1 {
		return parts[0], false, nil
	}
	all, err = nftables.ConcatSetType(parts...)
	return all, true, err
}

// element adds or deletes an element: "{ 10.96.0.1 . tcp . 443 : goto CHAIN }".
func (t *transaction) element(what, of string, words []string) error {
	if len(words) < 3 || words[0] != "{" || words[len(words)-1] != "}" {
		return fmt.Errorf("element of %s: %q is not understood", of, words)
	}
	key, value, isMap := strings.Cut(strings.Join(words[1:len(words)-1], " "), " : ")
	e := nftables.SetElement{}
	var err error
	if e.Key, err = values(key); err != nil {
		return fmt.Errorf("element of %s: %w", of, err)
	}
	set := &nftables.Set{Table: t.table, Name: of, IsMap: isMap, Concatenation: strings.Contains(key, " . ")}
	if what == "delete element" {
		return t.conn.SetDeleteElements(set, []nftables.SetElement{{Key: e.Key}})
	}
	if isMap {
		if e.VerdictData, err = verdict(strings.Fields(value)); err != nil {
			return fmt.Errorf("element of %s: %w", of, err)
		}
		set.DataType = nftables.TypeVerdict
	}
	return t.conn.SetAddElements(set, []nftables.SetElement{e})
}

// values returns the bytes of "10.96.0.1 . tcp . 443". If there are several parts, each takes whole registers of four
// bytes.
func values(text string) ([]byte, error) {
	parts := strings.Split(text, " . ")
	var all []byte
	for _, part := range parts {
		b, err := value(part)
		if err != nil {
			return nil, err
		}
		all = append(all, b...)
		for len(parts) > 1 && len(all)%4 != 0 {
			all = append(all, 0)
		}
	}
	return all, nil
}

// protocols are the protocols of Services.
var protocols = map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}

// value returns the bytes of an address, a protocol or a port.
func value(text string) ([]byte, error) {
	if p, ok := protocols[text]; ok {
		return []byte{p}, nil
	}
	if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() {
		return ip.AsSlice(), nil
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("want an IPv4 address, a protocol or a port, got %q", text)
	}
	return binary.BigEndian.AppendUint16(nil, uint16(port)), nil
}

// verdict parses the verdict for a packet: "goto CHAIN", "jump CHAIN" or "drop".
func verdict(words []string) (*expr.Verdict, error) {
	switch {
	case len(words) == 2 && words[0] == "goto":
		return &expr.Verdict{Kind: expr.VerdictGoto, Chain: words[1]}, nil
	case len(words) == 2 && words[0] == "jump":
		return &expr.Verdict{Kind: expr.VerdictJump, Chain: words[1]}, nil
	case len(words) == 1 && words[0] == "drop":
		return &expr.Verdict{Kind: expr.VerdictDrop}, nil
	}
	return nil, fmt.Errorf("verdict %q is not understood", words)
}
