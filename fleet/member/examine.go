package member

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"regexp"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/output"
)

// health is the result of an examination of a cluster.
type health struct {
	ready   bool
	joined  bool   // The credentials lead to an API server that accepts them.
	offline bool   // The API server could not be reached.
	reason  string // The reason of the problem, if there is one, as for message.
	message string

	lacking  string                      // Missing rights; "" if all necessary rights were granted.
	excess   string                      // The bound that an answer exceeded; "" if none was exceeded lately.
	leaving  string                      // The reason why a leaving cluster stays; "" if it does not leave.
	pending  string                      // Describes the deletions that wait for approval.
	held     *corev1alpha1.DeletionsHeld // The waiting deletions; nil if none wait.
	expiring string                      // Describes credentials that expire soon without a renewal; "" otherwise.
}

// examine connects to the cluster if it is not connected, and probes it. Its errors are [errLeft] and those of
// [Reconciler.claim]; all other problems are part of the health.
func (r *Reconciler) examine(ctx context.Context, fc *corev1alpha1.FederatedCluster) (health, error) {
	key := types.NamespacedName{Namespace: r.SystemNamespace, Name: fc.Spec.SecretRef.Name}
	secret, err := r.Secrets.Read(ctx, key.Name)
	switch {
	case apierrors.IsNotFound(err):
		return health{reason: "SecretNotFound", message: fmt.Sprintf("spec.secretRef.name: secret %s does not exist", key)}, nil
	case apierrors.IsForbidden(err):
		message := fmt.Sprintf("reading secret %s: %v; to permit it: %s", key, err, Permission(key))
		return health{reason: "SecretUnreadable", message: output.Cut(message, mostMessage)}, nil
	case err != nil:
		return health{reason: "SecretUnreadable", message: fmt.Sprintf("reading secret %s: %v", key, err)}, nil
	}
	cfg, err := Config(fc, secret)
	if errors.Is(err, ErrEndpoint) {
		return health{reason: "EndpointNotRecorded", message: output.Cut(err.Error(), mostMessage)}, nil
	}
	if err != nil {
		return health{reason: "InvalidCredentials", message: output.Cut(err.Error(), mostMessage)}, nil // The status reports it.
	}
	if r.Identity != "" {
		cfg.UserAgent += "/" + r.Identity
	}
	m, err := r.Set.connect(fc.Name, cfg, r.leads)
	if errors.Is(err, errLeft) {
		return health{}, err
	}
	if err != nil {
		return health{reason: "InvalidCredentials", message: output.Cut(fmt.Sprintf("secret %s: %v", key, err), mostMessage)}, nil
	}
	if m.Ready() && !m.recorded(fc) {
		r.Set.renew(m)
		const message = "the hub does not record this cluster under this name, as after a restore of the hub; Refract reconnects"
		return health{joined: true, reason: "Replaced", message: message}, nil
	}
	h := judge(m.api.probe(ctx), fc.Spec.APIEndpoint)
	if !h.ready {
		if misses := m.misses.Add(1); m.Ready() && misses < missesUntilLost {
			h = health{ready: true, joined: true} // A single lost answer must not change the status: a change triggers new decisions about all objects.
		}
		h.lacking, h.excess = m.api.rights.describe(), m.api.limits.excess.describe()
		return h, nil
	}
	if other, err := r.compare(ctx, m); err != nil || other.reason != "" {
		return other, err
	}
	m.probes++
	m.misses.Store(0)
	if !m.Ready() {
		if unwelcome, err := r.welcome(ctx, m, fc); err != nil || unwelcome.reason != "" {
			return unwelcome, err
		}
	}
	if m.Copies.doubts() {
		r.Set.sweeps.add(m.sweep, false)
	}
	m.Copies.reviewRights(ctx)
	h.expiring = r.keepCredentials(ctx, m, cfg, secret)
	h.lacking, h.excess = m.api.rights.describe(), m.api.limits.excess.describe()
	return h, nil
}

// compare checks whether the address of a member still leads to the known cluster, if there is any doubt or the last
// such check is too long ago. The result has a reason if the member cannot be used.
func (r *Reconciler) compare(ctx context.Context, m *Member) (health, error) {
	// A member that was lost may come back as another cluster, even between two checks.
	broke := m.api.broke.Swap(false)
	away := !m.Ready() || !m.Answers() || broke
	if !away && m.probes%probesUntilAsked != 0 && !m.identity.doubted() {
		return health{}, nil
	}
	why, err := m.identity.replaced(ctx, away)
	if err != nil && broke {
		m.api.broke.Store(true) // The next check compares.
	}
	switch {
	case why != "":
		r.Set.renew(m)
		return health{joined: true, reason: "Replaced", message: why}, nil
	case errors.Is(err, errLeft):
		return health{}, err
	case err != nil && !m.Ready() && !apierrors.IsForbidden(err):
		return health{joined: true, reason: "Unreadable", message: "identifying the cluster: " + plain(err)}, nil
	}
	return health{}, nil
}

// recorded reports whether a FederatedCluster records the cluster of a member, and a rank. [Reconciler.claim] records
// both before the first write, but a restore of the hub returns the status to an earlier state. Another name could then
// claim the cluster. If the right to identify the cluster is missing, recorded returns true.
func (m *Member) recorded(fc *corev1alpha1.FederatedCluster) bool {
	uid := m.identity.uid()
	return uid == "" || fc.Status.ClusterUID == uid && fc.Status.ClusterClaim > 0
}

// welcome identifies a member that became ready. It returns a health with a reason if the member is not accepted.
func (r *Reconciler) welcome(ctx context.Context, m *Member, fc *corev1alpha1.FederatedCluster) (health, error) {
	// If the right to read the UID is missing, the condition Authorized reports it.
	err := m.identity.identify(ctx)
	switch {
	case errors.Is(err, errLeft):
		return health{}, err
	case err != nil && !apierrors.IsForbidden(err), err != nil && !fc.Status.JoinPerformed:
		return health{joined: true, reason: "Unreadable", message: plain(err)}, nil
	}
	if r.Hub != "" && m.identity.uid() == r.Hub {
		return health{reason: "IsTheHub", message: "this is the hub itself, which cannot be its own member"}, nil
	}
	if err == nil {
		if other, err := r.claim(ctx, fc, m.identity.uid()); err != nil || other != "" {
			return health{reason: corev1alpha1.ReasonDuplicateCluster, message: duplicateMessage(fc.Name, other)}, err
		}
	}
	m.Copies.unwatched.askSweep()
	return health{}, nil
}

// judge returns the health that follows from the result of a probe.
func judge(err error, endpoint string) health {
	var status apierrors.APIStatus
	var untrusted *tls.CertificateVerificationError
	var elsewhere *redirected
	switch {
	case err == nil:
		return health{ready: true, joined: true}
	case errors.As(err, &elsewhere):
		return health{
			reason:  "Redirected",
			message: fmt.Sprintf("%s answers with %s; spec.apiEndpoint must be the address of the API server itself", endpoint, elsewhere),
		}
	case apierrors.IsUnauthorized(err):
		return health{reason: "Unauthorized", message: "the API server does not accept the credentials, which may have expired: " + plain(err)}
	case apierrors.IsForbidden(err):
		return health{joined: true, reason: "Forbidden", message: "the credentials lack a permission: " + plain(err)}
	case errors.As(err, &status):
		return health{joined: true, reason: "NotReady", message: "the API server is not ready: " + plain(err)}
	case errors.As(err, &untrusted):
		return health{reason: "CertificateInvalid", message: fmt.Sprintf("the certificate of %s is not accepted: %s", endpoint, verification(untrusted))}
	default:
		return health{offline: true, reason: "Unreachable", message: fmt.Sprintf("reaching %s: %s", endpoint, plain(err))}
	}
}

// verification describes the problem of a certificate in words that do not change with the time of day.
func verification(err *tls.CertificateVerificationError) string {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		const format = "it is valid from %s to %s"
		return fmt.Sprintf(format, invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339))
	}
	return err.Err.Error()
}

// localPort matches the local address of a connection, which differs in each attempt.
var localPort = regexp.MustCompile(`\b(read|write) (tcp[46]?) [^ ]+->`)

// plain returns the text of an error without the parts that differ in each attempt, so that a report of it does not
// change each time.
func plain(err error) string {
	return output.Cut(localPort.ReplaceAllString(err.Error(), "$1 $2 "), mostMessage)
}
