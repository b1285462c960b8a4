// Package webhook registers the webhooks of a cluster, a hub or a member, with its API server, and keeps the
// registration up to date. The kit in package [refract.dev/kit/webhook] serves the webhooks, and their handlers decide the
// answers.
//
// Without a folder of certificates, the server is its own certificate authority. The authority and the certificate are
// in a Secret of the system namespace, which all replicas share.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/internal/owner"
	kit "refract.dev/kit/webhook"
	"refract.dev/kit/webhook/pki"
)

// SecretName is the name of the Secret with the webhook's authority and certificate, in the system namespace. If the
// Secret is deleted, both are issued again.
const SecretName = "refract-webhook" //nolint:gosec // It is a name.

// Options configure a [Server].
type Options struct {
	// Client reads from the API server and not from a cache. Its scheme has the kinds of Kubernetes. Required.
	Client client.WithWatch
	// Namespace is the system namespace. Required unless CertDir is set.
	Namespace string
	// Secret is the name of the Secret; empty means [SecretName]. Programs with different addresses must not share a
	// Secret.
	Secret string
	// BindAddress is the HOST:PORT to listen on. An empty host means all addresses.
	BindAddress string
	// Listener, if set, replaces BindAddress.
	Listener net.Listener
	// URL is the address of this server for the API server, https://HOST[:PORT][/PATH]. Either URL or Service is
	// required.
	URL string
	// Service is the Service of this server, with port 443.
	Service types.NamespacedName
	// CertDir, if set, is a folder with tls.crt and tls.key that another program manages, such as cert-manager. If the
	// folder also has ca.crt, the server writes these authorities to the API server. Otherwise another program does.
	CertDir string
	// ClientCAFile, if set, is a file of certificate authorities. Each client must then present a certificate that one
	// of them has signed, with one of the ClientNames if there are any. An API server presents one only if it is
	// configured to, and never for conversion.
	ClientCAFile string
	ClientNames  []string
	// Metrics registers the server's metrics; nil registers none.
	Metrics prometheus.Registerer
	// Drain is the time for which the server still accepts connections of clients that do not know yet that it ends; 0
	// means none.
	Drain time.Duration
	// Log gets the messages that an operator should act on.
	Log logr.Logger
	// Now returns the time for issuing certificates; nil means time.Now.
	Now func() time.Time
}

// Server serves webhooks over HTTPS, and knows its address for the API server. It is a Runnable of a manager, and every
// replica runs it.
type Server struct {
	*kit.Server

	client       client.WithWatch
	log          logr.Logger
	endpoint     endpoint
	certificates kit.Certificates
	owners       *owner.Owners
}

// New returns a server that does not listen yet.
func New(o Options) (*Server, error) {
	at, err := o.endpoint()
	if err != nil {
		return nil, err
	}
	certificates, err := o.certificates(at.names())
	if err != nil {
		return nil, err
	}
	server, err := kit.New(kit.Options{
		BindAddress: o.BindAddress, Listener: o.Listener, Certificates: certificates,
		ClientCAFile: o.ClientCAFile, ClientNames: o.ClientNames, Log: o.Log, Metrics: o.Metrics, Now: o.Now, Drain: o.Drain,
	})
	if err != nil {
		return nil, err
	}
	return &Server{Server: server, client: o.Client, log: o.Log, endpoint: at, certificates: certificates, owners: owner.New(o.Client)}, nil
}

// certificates returns the certificates for a server with these names.
func (o *Options) certificates(names []string) (kit.Certificates, error) {
	if o.CertDir != "" {
		return kit.Files(filepath.Join(o.CertDir, pki.ServingCertificate), filepath.Join(o.CertDir, pki.ServingKey),
			filepath.Join(o.CertDir, pki.Authorities), o.Log)
	}
	if o.Namespace == "" {
		return nil, errors.New("the namespace for the webhook's Secret is not given")
	}
	return kit.Issued(o.Client, types.NamespacedName{Namespace: o.Namespace, Name: cmp.Or(o.Secret, SecretName)}, names,
		kit.IssuedOptions{CreateNamespace: true, Log: o.Log, Now: o.Now}), nil
}

// soon is the interval of [until].
const soon = 50 * time.Millisecond

// until waits until the condition holds. It returns false if ctx ends first.
func until(ctx context.Context, is func() bool) bool {
	return wait.PollUntilContextCancel(ctx, soon, true, func(context.Context) (bool, error) { return is(), nil }) == nil
}

// endpoint is the address of the webhooks for the API server.
type endpoint struct {
	url     *url.URL // Nil for a Service.
	service types.NamespacedName
}

func (o *Options) endpoint() (endpoint, error) {
	if (o.URL == "") == (o.Service.Name == "") {
		return endpoint{}, errors.New("the webhook needs a URL or a Service, and not both, for the API server to find it")
	}
	if o.URL == "" {
		if o.Service.Namespace == "" {
			return endpoint{}, fmt.Errorf("the namespace of the webhook's Service %q is not given", o.Service.Name)
		}
		return endpoint{service: o.Service}, nil
	}
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return endpoint{}, fmt.Errorf("the webhook's URL: %w", err)
	case u.Scheme != "https" || u.Hostname() == "":
		return endpoint{}, fmt.Errorf("the webhook's URL is %q, want https://HOST[:PORT][/PATH]", u.Redacted())
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return endpoint{}, fmt.Errorf("the webhook's URL is %q, and API servers allow neither a user nor a query nor a fragment", u.Redacted())
	}
	return endpoint{url: u}, nil
}

// names returns the names for the server's certificate.
func (e *endpoint) names() []string {
	if e.url != nil {
		return []string{strings.ToLower(e.url.Hostname())}
	}
	// An API server uses NAME.NAMESPACE.svc, whatever the cluster's domain.
	inside := e.service.Name + "." + e.service.Namespace
	return []string{inside + ".svc", inside}
}

// at returns the URL of a path; empty for a Service.
func (e *endpoint) at(path string) string {
	if e.url == nil {
		return ""
	}
	return e.url.JoinPath(path).String()
}
