package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Address is the address of the node and of its API server. No other machine is on its network.
const Address = "10.99.0.1"

// device is the name of the interface with the address.
const device = "node"

// connect creates an isolated network: a bridge without ports that has the Node's address. It routes all of 10.0.0.0/8
// to the bridge, because the kernel drops packets to Services without a route before kube-proxy's rules can redirect
// them.
func connect() error {
	if err := addBridge(device); err != nil {
		return fmt.Errorf("making a bridge, which the kernel has to know how to: %w", err)
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("configuring interfaces: %w", err)
	}
	defer func() { _ = unix.Close(socket) }()
	if err := errors.Join(address(socket, unix.SIOCSIFADDR, []byte{10, 99, 0, 1}), address(socket, unix.SIOCSIFNETMASK, []byte{255, 0, 0, 0})); err != nil {
		return fmt.Errorf("giving the node an address: %w", err)
	}
	for _, name := range []string{"lo", device} {
		if err := up(socket, name); err != nil {
			return fmt.Errorf("switching %s on: %w", name, err)
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("having the node forward what pods send: %w", err)
	}
	// With IPv6, kube-proxy would need rules for it, too.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("doing without IPv6: %w", err)
	}
	// Responses between pods through a Service must also pass the rules of the Service.
	if err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("1"), 0); err != nil {
		return fmt.Errorf("having rules apply to bridges, which takes the kernel's br_netfilter (modprobe br_netfilter): %w", err)
	}
	return nil
}

func address(socket int, request uint, is []byte) error {
	i, err := unix.NewIfreq(device)
	if err != nil {
		return err
	}
	if err := i.SetInet4Addr(is); err != nil {
		return err
	}
	return unix.IoctlIfreq(socket, request, i)
}

func up(socket int, name string) error {
	i, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, i); err != nil {
		return err
	}
	i.SetUint16(i.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, i)
}

// addBridge makes a bridge with a netlink message. The format is that of https://www.rfc-editor.org/rfc/rfc3549.
func addBridge(name string) error {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	body := slices.Concat(make([]byte, unix.SizeofIfInfomsg), // An empty header: the attributes have all values.
		attribute(unix.IFLA_IFNAME, append([]byte(name), 0)),
		attribute(unix.IFLA_LINKINFO, attribute(unix.IFLA_INFO_KIND, []byte("bridge"))))
	message := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	message = binary.NativeEndian.AppendUint16(message, unix.RTM_NEWLINK)
	message = binary.NativeEndian.AppendUint16(message, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	message = append(message, make([]byte, 8)...) // A sequence number and a port, which the answer repeats.
	if err := unix.Sendto(socket, append(message, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, os.Getpagesize())
	n, _, err := unix.Recvfrom(socket, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("want an answer, got %d bytes", n)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return syscall.Errno(-code)
	}
	return nil
}

// attribute returns a netlink attribute: length, type and value, padded to a multiple of four bytes.
func attribute(kind uint16, value []byte) []byte {
	out := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(value)))
	out = append(binary.NativeEndian.AppendUint16(out, kind), value...)
	for len(out)%unix.RTA_ALIGNTO != 0 {
		out = append(out, 0)
	}
	return out
}
