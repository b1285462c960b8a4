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
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/installation"
	"refract.dev/internal/member"
)

// renewedAtOnce is how many members get new credentials at a time.
const renewedAtOnce = 8

// renewAll gives each member a new token, by the contexts of the kubeconfig that lead to it.
func (o *joinOptions) renewAll(ctx context.Context, s *streams, hub client.WithWatch) error {
	contexts, err := o.contextsByServer()
	if err != nil {
		return err
	}
	list := &corev1alpha1.FederatedClusterList{}
	if err := hub.List(ctx, list); err != nil {
		return fmt.Errorf("listing clusters: %w", err)
	}
	var mu sync.Mutex
	failed := false
	lines := make([]string, len(list.Items))
	group := errgroup.Group{}
	group.SetLimit(renewedAtOnce)
	for i := range list.Items {
		fc := &list.Items[i]
		group.Go(func() error {
			said := &bytes.Buffer{}
			by, err := o.renew(ctx, &streams{err: said}, hub, fc, contexts)
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprint(s.err, said)
			if err != nil {
				failed = true
				lines[i] = fmt.Sprintf("cluster %s: %s", fc.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
				return nil
			}
			lines[i] = fmt.Sprintf("cluster %s: renewed by context %s", fc.Name, by)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	slices.Sort(lines)
	for _, line := range lines {
		fmt.Fprintln(s.out, line)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if failed {
		return errFound
	}
	return nil
}

// contextsByServer returns the contexts of the members' kubeconfig by the servers that they lead to, in the one form of an address.
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
		if server, err := member.Server(to.Server); err == nil { // Another one leads to no member.
			contexts[server] = append(contexts[server], name)
		}
	}
	if len(contexts) == 0 {
		return nil, withHint(errors.New("the kubeconfig of the members has no context"), "--member-kubeconfig names another file")
	}
	return contexts, nil
}

// renew gives a member a new token, waits until the member is ready, and returns the context by which it did.
func (o *joinOptions) renew(
	ctx context.Context, s *streams, hub client.WithWatch, fc *corev1alpha1.FederatedCluster, contexts map[string][]string,
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
	var errs []error
	for _, by := range contexts[server] {
		if err := o.renewBy(ctx, s, hub, fc, secret, by); err != nil {
			errs = append(errs, fmt.Errorf("context %s: %w", by, err))
			continue
		}
		if o.timeout == 0 {
			return by, nil
		}
		return by, o.untilReady(ctx, s, hub, fc.Name)
	}
	return "", fmt.Errorf("not renewed: %w", errors.Join(errs...))
}

// renewBy gives a member a new token by a context.
func (o *joinOptions) renewBy(
	ctx context.Context, s *streams, hub client.Client, fc *corev1alpha1.FederatedCluster, secret *corev1.Secret, by string,
) error {
	cfg, err := fileConfig(cmp.Or(o.kubeconfig, *o.cluster.kubectl.KubeConfig), by)
	if err != nil {
		return err
	}
	if err := member.Recognize(ctx, fc, cfg); err != nil { // Before anything is made on it.
		return err
	}
	if cfg, _, err = admit(ctx, s, hub, fc.Name, cfg, nil); err != nil {
		return fmt.Errorf("requesting a token: %w", err)
	}
	return member.Renew(ctx, hub, fc, secret, cfg)
}
