package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"refract.dev/fleet/member"
)

const (
	// SecretReader is the built-in access provider. The token is in a Secret of the system namespace with the name of
	// the ClusterProfile, as for the plugin of this name.
	SecretReader = "secretreader"
	// tokenKey is the key of the token in that Secret.
	tokenKey = "token"

	// soonest and latest are delays before credentials are read again. soonest is the minimum, and the delay if there
	// are no credentials. latest is the delay for credentials without an expiration time.
	soonest, latest = 30 * time.Second, 10 * time.Minute
)

// Reasons for missing credentials.
var (
	errNoAccess        = errors.New("it names no access to the cluster yet: its status.accessProviders is empty")
	errUnknownProvider = errors.New("and Refract knows none of them")
	errInsecure        = errors.New("insecure-skip-tls-verify would send credentials to any server: want certificate-authority-data")
)

// kubeconfigOf returns the address of the cluster's API server, a complete kubeconfig, and the time to read the
// credentials again. The time is zero if the credentials change only with an object of the hub.
func (c *Controller) kubeconfigOf(ctx context.Context, e *entry) (server string, text []byte, again time.Time, err error) {
	if e.unreadable != nil {
		return "", nil, time.Time{}, e.unreadable
	}
	if e.kind == kindCluster {
		server, err = member.ServerOf(e.kubeconfig)
		return server, e.kubeconfig, time.Time{}, err
	}
	a, program, err := c.chosen(e)
	if err != nil {
		return "", nil, time.Time{}, err
	}
	if a.Cluster.InsecureSkipTLSVerify {
		return "", nil, time.Time{}, fmt.Errorf("access provider %s: %w", a.Name, errInsecure)
	}
	if server, err = member.Server(a.Cluster.Server); err != nil {
		return "", nil, time.Time{}, fmt.Errorf("access provider %s: %w", a.Name, err)
	}
	var cred *credential
	if program == nil {
		cred, err = c.secretToken(ctx, e.object.Name, server)
	} else {
		cred, err = c.asked(ctx, e, program, &a.Cluster)
		again = nextAfter(c.now(), cred)
	}
	if err != nil {
		return server, nil, again, fmt.Errorf("access provider %s: %w", a.Name, err)
	}
	text, err = write(&a.Cluster, cred)
	return server, text, again, err
}

// chosen returns the first access of an entry with a known provider. The program is nil for the built-in provider.
func (c *Controller) chosen(e *entry) (*access, *Program, error) {
	if len(e.access) == 0 {
		return nil, nil, errNoAccess
	}
	var names []string
	for i := range e.access {
		a := &e.access[i]
		if p := c.options.Providers[a.Name]; p != nil || a.Name == SecretReader {
			return a, p, nil
		}
		names = append(names, a.Name)
	}
	return nil, nil, fmt.Errorf("its access providers are %s, %w: name their programs with --cluster-profile-providers",
		strings.Join(names, ", "), errUnknownProvider)
}

// secretToken returns the token of a Secret. The Secret must permit the API server at this address.
func (c *Controller) secretToken(ctx context.Context, name, server string) (*credential, error) {
	secret := &corev1.Secret{}
	key := types.NamespacedName{Namespace: c.options.SystemNamespace, Name: name}
	switch err := c.client.Get(ctx, key, secret); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("secret %s does not exist: want one with the key %s", key, tokenKey)
	case err != nil:
		return nil, fmt.Errorf("reading secret %s: %w", key, err)
	}
	token := secret.Data[tokenKey]
	if len(token) == 0 {
		return nil, fmt.Errorf("secret %s: key %s is missing", key, tokenKey)
	}
	if err := member.Recorded(server, secret); err != nil {
		return nil, err
	}
	return &credential{token: string(token)}, nil
}

// said is the last answer of a program for a cluster.
type said struct {
	by      *Program
	cluster string // The request, as text.
	cred    *credential
	again   time.Time
}

// asked returns the credentials of a cluster from the program. It runs the program again before the credentials expire.
func (c *Controller) asked(ctx context.Context, e *entry, p *Program, cluster *clientcmdv1.Cluster) (*credential, error) {
	about, err := p.request(cluster)
	if err != nil {
		return nil, err
	}
	name := e.object.Name
	c.mu.Lock()
	last := c.answers[name]
	c.mu.Unlock()
	if last != nil && last.by == p && last.cluster == about && c.now().Before(last.again) {
		return last.cred, nil
	}
	cred, err := p.ask(ctx, cluster)
	if why, ok := errors.AsType[*complaint](err); ok {
		c.log.Error(err, "An access provider failed", "cluster", name, "said", why.said)
	}
	if err != nil {
		if last != nil && last.by == p && last.cluster == about && c.now().Before(last.cred.until) {
			return last.cred, nil // The last credentials are still valid; the next reconciliation tries again.
		}
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[name] = &said{p, about, cred, nextAfter(c.now(), cred)}
	return cred, nil
}

// nextAfter returns the time to read credentials again: after two thirds of their remaining lifetime, or after the
// delay soonest if there are none.
func nextAfter(now time.Time, cred *credential) time.Time {
	switch {
	case cred == nil:
		return now.Add(soonest)
	case cred.until.IsZero():
		return now.Add(latest)
	default:
		return now.Add(max(soonest, cred.until.Sub(now)/3*2))
	}
}

// write returns a kubeconfig for one cluster that contains all certificates and credentials.
func write(cluster *clientcmdv1.Cluster, cred *credential) ([]byte, error) {
	const name = "cluster"
	user := &clientcmdapi.AuthInfo{Token: cred.token, ClientCertificateData: cred.cert, ClientKeyData: cred.key}
	return clientcmd.Write(clientcmdapi.Config{
		CurrentContext: name,
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: user},
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: cluster.Server, TLSServerName: cluster.TLSServerName, CertificateAuthorityData: slices.Clone(cluster.CertificateAuthorityData),
			ProxyURL: cluster.ProxyURL, DisableCompression: cluster.DisableCompression,
		}},
	})
}
