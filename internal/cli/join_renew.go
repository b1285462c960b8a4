package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/internal/installation"
)

// renewedAtOnce is the maximum number of members that get new credentials at the same time.
const renewedAtOnce = 8

// renewAll gives each member a new token. It uses the contexts of the kubeconfig that have the address of the member.
func (o *joinOptions) renewAll(ctx context.Context, s *streams, hub client.WithWatch) error {
	contexts, err := o.contextsByServer()
	if err != nil {
		return err
	}
	if err := member.PermitAll(ctx, hub, o.namespace); err != nil {
		return err
	}
	list := &corev1alpha1.FederatedClusterList{}
	if err := hub.List(ctx, list); err != nil {
		return fmt.Errorf("listing clusters: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b corev1alpha1.FederatedCluster) int { return strings.Compare(a.Name, b.Name) })
	results := make(chan *renewal, len(list.Items))
	turns := make(chan struct{}, renewedAtOnce)
	for i := range list.Items {
		r := &renewal{name: list.Items[i].Name}
		go func() {
			r.by, r.err = o.renew(ctx, s.narrating(&r.said), hub, &list.Items[i], contexts, turns)
			results <- r
		}()
	}
	over := make(chan struct{}) // Closed shortly after the end of ctx, so that most renewals can still report their errors.
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace/5, func() { close(over) }) })()
	done := map[string]*renewal{}
	for ended := false; !ended && len(done) < len(list.Items); {
		s.at(fmt.Sprintf("%d of %d clusters are done", len(done), len(list.Items)), again)
		select {
		case r := <-results:
			done[r.name] = r
			fmt.Fprint(s.err, &r.said)
		case <-over:
			ended = true
		}
	}
	failed := false
	for i := range list.Items {
		r := done[list.Items[i].Name]
		if r == nil {
			r = &renewal{name: list.Items[i].Name, err: errors.New("it is not known whether it was renewed: no answer before the end")}
		}
		failed = failed || r.err != nil
		fmt.Fprintln(s.out, r)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case failed:
		return errFound
	default:
		return nil
	}
}

// renewal is the result for one member.
type renewal struct {
	name string
	by   string // The context that was used.
	err  error
	said bytes.Buffer
}

func (r *renewal) String() string {
	if r.err != nil {
		return fmt.Sprintf("cluster %s: %s", r.name, strings.ReplaceAll(r.err.Error(), "\n", "; "))
	}
	return fmt.Sprintf("cluster %s: renewed by context %s", r.name, r.by)
}

// contextsByServer returns the contexts in the kubeconfig of the members. The keys are the normalized addresses of the
// contexts' API servers.
func (o *joinOptions) contextsByServer() (map[string][]string, error) {
	raw, err := loaderOf(cmp.Or(o.kubeconfig, *o.cluster.kubectl.KubeConfig), "").RawConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of the members: %w", err)
	}
	contexts := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(raw.Contexts)) {
		to := raw.Clusters[raw.Contexts[name].Cluster]
		if to == nil || o.context != "" && name != o.context {
			continue
		}
		if server, err := member.Server(to.Server); err == nil { // A context with an invalid address is useless.
			contexts[server] = append(contexts[server], name)
		}
	}
	if len(contexts) == 0 {
		return nil, withHint(errors.New("the kubeconfig of the members has no context"), "--member-kubeconfig names another file")
	}
	return contexts, nil
}

// renew gives a member a new token, and waits until the member is ready. It returns the context that it has used.
func (o *joinOptions) renew(
	ctx context.Context, s *streams, hub client.WithWatch, fc *corev1alpha1.FederatedCluster, contexts map[string][]string, turns chan struct{},
) (by string, err error) {
	account := types.NamespacedName{Namespace: corev1alpha1.SystemNamespace, Name: installation.MemberAccount}
	secret, err := member.TokenSecret(ctx, hub, o.namespace, fc, account)
	if err != nil {
		return "", fmt.Errorf("not renewed: %w", err)
	}
	server, err := member.Server(fc.Spec.APIEndpoint)
	if err != nil {
		return "", fmt.Errorf("not renewed: spec.apiEndpoint: %w", err)
	}
	if len(contexts[server]) == 0 {
		return "", fmt.Errorf("not renewed: no context of the kubeconfig leads to %s: add one, and repeat the command", server)
	}
	select {
	case turns <- struct{}{}:
	case <-ctx.Done():
		return "", fmt.Errorf("not renewed: the command ended before its turn: %w", ctx.Err())
	}
	by, err = o.renewByAny(ctx, s, hub, fc, secret, contexts[server])
	<-turns
	if err != nil {
		return "", fmt.Errorf("not renewed: %w", err)
	}
	if o.timeout == 0 {
		return by, nil
	}
	return by, o.untilReady(ctx, s, hub, fc.Name)
}

// renewByAny gives a member a new token. It tries the contexts in order, and returns the first one that works.
func (o *joinOptions) renewByAny(
	ctx context.Context, s *streams, hub client.Client, fc *corev1alpha1.FederatedCluster, secret *corev1.Secret, contexts []string,
) (by string, err error) {
	var errs []error
	for _, by := range contexts {
		err := o.renewBy(ctx, s, hub, fc, secret, by)
		if err == nil {
			return by, nil
		}
		errs = append(errs, fmt.Errorf("context %s: %w", by, err))
	}
	return "", errors.Join(errs...)
}

// renewTimeout is the time limit for one member, because others may be waiting.
const renewTimeout = 30 * time.Second

// renewBy gives a member a new token through a context.
func (o *joinOptions) renewBy(
	ctx context.Context, s *streams, hub client.Client, fc *corev1alpha1.FederatedCluster, secret *corev1.Secret, by string,
) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	cfg, err := fileConfig(cmp.Or(o.kubeconfig, *o.cluster.kubectl.KubeConfig), by)
	if err != nil {
		return err
	}
	if err := member.Recognize(ctx, fc, cfg); err != nil { // This check must come before the first write to the cluster.
		return err
	}
	of := &account{s: s, hub: hub, of: fc.Name, writes: func() {}} // Nothing needs to be undone after an error, because the cluster is a member.
	if cfg, err = of.admit(ctx, cfg, nil); err != nil {
		return fmt.Errorf("requesting a token: %w", err)
	}
	return member.Renew(ctx, hub, fc, secret, cfg)
}
