package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"

	"github.com/spf13/pflag"
)

// options are the values of the flags.
type options struct {
	securePort        int
	bindAddress       string
	healthAddress     string
	certDir           string
	certFile, keyFile string
	kubeconfig        string
	namespace         string
	service           string
	secret            string
	verbosity         int
}

const help = `The webhook of the pizza restaurant: /convert/v1beta1/pizza, /admit/v1beta1/pizza
and /validate/v1beta1/pizza over HTTPS.

Without a certificate in files it issues its own, which all replicas share in a
Secret, and has the API server trust it.

Flags:
`

// parse returns nil options if args request help, which it then prints.
func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	f := pflag.NewFlagSet(args[0], pflag.ContinueOnError)
	f.SortFlags = false
	f.Usage = func() {}
	f.IntVar(&o.securePort, "secure-port", 8443, "`port` for HTTPS")
	f.StringVar(&o.bindAddress, "bind-address", "0.0.0.0", "IP `address` to listen on")
	f.StringVar(&o.healthAddress, "health-address", ":8081", "`address` for /healthz, /readyz and /metrics over HTTP; empty for none")
	f.StringVar(&o.certDir, "cert-dir", "",
		"`folder` with tls.crt and tls.key, if somebody else keeps the certificate; with ca.crt the API server is told to trust that")
	f.StringVar(&o.certFile, "tls-cert-file", "", "`file` with the certificate, if somebody else keeps it")
	f.StringVar(&o.keyFile, "tls-private-key-file", "", "`file` with its key")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` that says where the API server is; in a cluster there need be none")
	f.StringVar(&o.namespace, "namespace", "pizza-crd", "`namespace` of the Service and of the Secret")
	f.StringVar(&o.service, "service", "webhook", "`name` of the Service, which the certificate is issued for")
	f.StringVar(&o.secret, "secret", "serving-cert", "`name` of the Secret that the certificate is kept in")
	f.IntVarP(&o.verbosity, "v", "v", 0, "how much is logged; 4 for a line per request")
	err := f.Parse(args[1:])
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(out, help, f.FlagUsages())
		return nil, nil //nolint:nilnil // There is nothing to serve, and nothing wrong.
	}
	if err == nil {
		err = o.check(f.Args())
	}
	return o, err
}

func (o *options) check(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q", args[0])
	case o.securePort < 0 || o.securePort > 65535:
		return fmt.Errorf("--secure-port: want 0 to 65535, got %d", o.securePort)
	case net.ParseIP(o.bindAddress) == nil:
		return fmt.Errorf("--bind-address: want an IP address, got %q", o.bindAddress)
	case (o.certFile == "") != (o.keyFile == ""):
		return errors.New("--tls-cert-file and --tls-private-key-file: want both or none")
	case o.certDir != "" && o.certFile != "":
		return errors.New("--cert-dir and --tls-cert-file: want one of them")
	}
	return nil
}

// address returns the HOST:PORT to listen on.
func (o *options) address() string {
	return net.JoinHostPort(o.bindAddress, strconv.Itoa(o.securePort))
}

// files returns the files of a certificate that the program does not issue itself, and of its authority; all are empty
// if it issues its own.
func (o *options) files() (cert, key, authority string) {
	if o.certDir == "" {
		return o.certFile, o.keyFile, ""
	}
	return filepath.Join(o.certDir, "tls.crt"), filepath.Join(o.certDir, "tls.key"), filepath.Join(o.certDir, "ca.crt")
}

// names returns the names under which clients reach the webhook.
func (o *options) names() []string {
	inside := o.service + "." + o.namespace + ".svc"
	names := []string{inside, inside + ".cluster.local"}
	if ip := net.ParseIP(o.bindAddress); !ip.IsUnspecified() {
		names = append(names, o.bindAddress)
	}
	return names
}
