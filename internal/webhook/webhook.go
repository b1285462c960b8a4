// Package webhook registers the webhooks of a hub or member with its API server. The server of package
// [refract.dev/kit/webhook] serves these webhooks. Handlers in other packages decide on the responses.
//
// Unless a folder with certificates is given, the server has its own certificate authority. The authority and the
// certificate are in a Secret in the system namespace, which all replicas share.
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

// SecretName is the name of the Secret with the authority and the certificate of the webhook, in the system namespace.
// If it is deleted, a new authority and a new certificate are issued.
const SecretName = "refract-webhook" //nolint:gosec // It is a name.

// Options configure a [Server].
type Options struct {
	// Client reads from the API server. It must not read from a cache. Its scheme must have the types of Kubernetes.
	// Required.
	Client client.WithWatch
	// Namespace is the system namespace. Required unless CertDir is set.
	Namespace string
	// Secret is the name of the Secret; empty means [SecretName]. Programs with different addresses must not share a
	// Secret.
	Secret string
	// BindAddress is the HOST:PORT to listen on. An empty host means all addresses.
	BindAddress string
	// Listener replaces BindAddress if it is not nil.
	Listener net.Listener
	// URL is the address at which the API server reaches this server: https://HOST[:PORT][/PATH]. Either URL or Service
	// is required.
	URL string
	// Service is the Service at which the API server reaches this server, on port 443.
	Service types.NamespacedName
	// CertDir is a folder with tls.crt and tls.key that another program writes, such as cert-manager. If it also has
	// ca.crt, the server writes these authorities into the webhook configurations. Otherwise another program must do
	// so. If CertDir is empty, the server issues its own certificates.
	CertDir string
	// ClientCAFile is a file with certificate authorities. If it is not empty, clients must have a certificate that one
	// of them has signed. If there are ClientNames, the certificate must also be for one of these names. An API server
	// has such a certificate only if it is configured, and never uses it for conversion.
	ClientCAFile string
	ClientNames  []string
	// Metrics is where the server registers its metrics; nil means nowhere.
	Metrics prometheus.Registerer
	// Drain is how long the server still accepts connections before it ends, because clients may not know yet that it
	// ends; 0 means not at all.
	Drain time.Duration
	// Log is for messages that require an action of an operator.
	Log logr.Logger
	// Now returns the time that is used for certificates; nil means time.Now.
	Now func() time.Time
}

// Server serves webhooks over HTTPS, and knows the address at which the API server reaches it. It is a Runnable of a
// manager, and runs in every replica.
type Server struct {
	*kit.Server

	client       client.WithWatch
	log          logr.Logger
	endpoint     endpoint
	certificates kit.Certificates
	owners       *owner.Owners
}

// New returns a server. It does not listen before it is started.
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

// soon is how often [until] checks its condition.
const soon = 50 * time.Millisecond

// until waits until the condition is true. If ctx ends first, it returns false.
func until(ctx context.Context, is func() bool) bool {
	return wait.PollUntilContextCancel(ctx, soon, true, func(context.Context) (bool, error) { return is(), nil }) == nil
}

// endpoint is the address at which the API server reaches the webhooks.
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

// names returns the names that the server's certificate needs.
func (e *endpoint) names() []string {
	if e.url != nil {
		return []string{strings.ToLower(e.url.Hostname())}
	}
	// An API server uses NAME.NAMESPACE.svc, whatever the cluster domain is.
	inside := e.service.Name + "." + e.service.Namespace
	return []string{inside + ".svc", inside}
}

// at returns the URL of a path; empty if the API server uses a Service.
func (e *endpoint) at(path string) string {
	if e.url == nil {
		return ""
	}
	return e.url.JoinPath(path).String()
}
