// Package webhook keeps an API server informed when and where to ask the webhooks of
// a cluster, be it a hub or a member. They are served by the kit that is in package
// [refract.dev/webhook]; what is answered is for the handlers to say.
//
// Without a folder of certificates the server is its own authority. Authority and
// certificate lie in a Secret of the system namespace, which all replicas share.
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
	kit "refract.dev/webhook"
	"refract.dev/webhook/pki"
)

// SecretName is that of the Secret, in the system namespace, with the webhook's
// authority and certificate. Whoever deletes it has both issued anew.
const SecretName = "refract-webhook" //nolint:gosec // It is a name.

// Options say how webhooks are served.
type Options struct {
	// Client reads what is there now, not what a cache remembers. Its scheme has the
	// kinds of Kubernetes. Required.
	Client client.WithWatch
	// Namespace is the system namespace. Required unless CertDir is given.
	Namespace string
	// Secret is the name of the Secret; [SecretName] if empty. Programs that are found at
	// different places must not share one.
	Secret string
	// BindAddress is HOST:PORT to listen on; an empty host means all.
	BindAddress string
	// Listener, if set, is where to listen instead.
	Listener net.Listener
	// URL is where the API server finds this server, https://HOST[:PORT][/PATH]. Either
	// it or Service is required.
	URL string
	// Service is in front of this server, on port 443.
	Service types.NamespacedName
	// CertDir, if set, is a folder with tls.crt and tls.key, which somebody else keeps,
	// as cert-manager does. If ca.crt is there too it is what the API server is told to
	// trust; if not, what it is told is left to somebody else.
	CertDir string
	// ClientCAFile, if set, is a file of authorities: whoever connects must show a
	// certificate that one of them has signed, of one of ClientNames if there are any. An
	// API server does only if it is configured to, and never to convert.
	ClientCAFile string
	ClientNames  []string
	// Metrics is where the server's metrics are registered; nil for nowhere.
	Metrics prometheus.Registerer
	// Drain is how long those who have not heard yet that the server ends are answered; 0 for not at all.
	Drain time.Duration
	// Log is told what an operator acts on.
	Log logr.Logger
	// Now tells the time by which certificates are issued; time.Now if nil.
	Now func() time.Time
}

// Server serves webhooks over HTTPS, and knows where the API server finds them. It
// is a Runnable of a manager, which every replica runs.
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

// certificates returns those for a server of these names.
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

// soon is how often it is looked whether something is so that will be in a moment.
const soon = 50 * time.Millisecond

// until returns when something is so, and false if ctx ended before.
func until(ctx context.Context, is func() bool) bool {
	return wait.PollUntilContextCancel(ctx, soon, true, func(context.Context) (bool, error) { return is(), nil }) == nil
}

// endpoint is where the API server finds the webhooks.
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

// names returns the names that the server's certificate is for.
func (e *endpoint) names() []string {
	if e.url != nil {
		return []string{strings.ToLower(e.url.Hostname())}
	}
	// An API server asks for NAME.NAMESPACE.svc, whatever the cluster's domain.
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
