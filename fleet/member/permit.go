package member

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

const (
	// PermitRole is the name of a Role in the system namespace, and of its RoleBinding. The Role names the Secrets of
	// members that the account on the hub reads. No manifest contains the Role, as an upgrade would reset it.
	PermitRole = "refract-hub-clusters"
	// hubAccount is the ServiceAccount of Refract on the hub.
	hubAccount = "refract"
)

// permitVerbs are the rights to each Secret. Refract reads a Secret by a list request for its name, and patches it to
// renew a token.
var permitVerbs = []string{"list", "watch", "patch"}

// Permission returns the command that lets the account on the hub read a Secret that `refract join` has not created.
func Permission(secret types.NamespacedName) string {
	const format = "kubectl create role %[1]s-%[3]s -n %[2]s --verb=list,watch,patch --resource=secrets --resource-name=%[3]s && " +
		"kubectl create rolebinding %[1]s-%[3]s -n %[2]s --role=%[1]s-%[3]s --serviceaccount=%[2]s:%[4]s"
	return fmt.Sprintf(format, PermitRole, secret.Namespace, secret.Name, hubAccount)
}

// Permit lets the account on the hub read these Secrets of the system namespace, in addition to those that it may read
// already.
func Permit(ctx context.Context, hub client.Client, namespace string, secrets ...string) error {
	if len(secrets) == 0 {
		return nil
	}
	err := changePermitted(ctx, hub, namespace, true, func(names []string) []string { return append(names, secrets...) })
	if err != nil {
		return fmt.Errorf("permitting Refract to read secrets of namespace %s: %w", namespace, err)
	}
	// The role comes first: a binding to a missing role grants nothing.
	binding := &rbacv1.RoleBinding{
		ObjectMeta: permitMeta(namespace),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: PermitRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: hubAccount}},
	}
	there := &rbacv1.RoleBinding{}
	err = hub.Get(ctx, client.ObjectKeyFromObject(binding), there)
	if apierrors.IsNotFound(err) {
		if err = hub.Create(ctx, binding); err == nil || apierrors.IsAlreadyExists(err) {
			return nil // Another command has created the same binding.
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("permitting Refract to read secrets of namespace %s: %w", namespace, err)
	case there.RoleRef != binding.RoleRef || !slices.Contains(there.Subjects, binding.Subjects[0]):
		return fmt.Errorf("rolebinding %s/%s does not bind the role of its name to serviceaccount %s/%s: delete it, and repeat the command",
			namespace, PermitRole, namespace, hubAccount)
	}
	return nil
}

// PermitAll lets the account on the hub read the Secrets of all members. It leaves out a Secret that does not have the
// credentials for the FederatedCluster that names it: the author of a FederatedCluster must not choose which Secrets
// Refract reads.
func PermitAll(ctx context.Context, hub client.Client, namespace string) error {
	all, err := clusters(ctx, hub)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil // The hub has had no member yet.
	}
	if err != nil {
		return err
	}
	var names []string
	for i := range all {
		secret := &corev1.Secret{}
		key := client.ObjectKey{Namespace: namespace, Name: all[i].Spec.SecretRef.Name}
		if key.Name == "" {
			continue
		}
		if err := hub.Get(ctx, key, secret); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return fmt.Errorf("reading secret %s: %w", key, err)
		}
		if _, err := Config(&all[i], secret); err != nil {
			continue // The status of the cluster reports it.
		}
		names = append(names, key.Name)
	}
	return Permit(ctx, hub, namespace, names...)
}

// withdraw revokes the right of the account on the hub to read the Secret of a leaving member, unless another member
// has the same Secret.
func withdraw(ctx context.Context, hub client.Client, namespace string, fc *corev1alpha1.FederatedCluster) error {
	all, err := clusters(ctx, hub)
	if err != nil {
		return err
	}
	name := fc.Spec.SecretRef.Name
	if slices.ContainsFunc(all, func(other corev1alpha1.FederatedCluster) bool {
		return other.UID != fc.UID && other.Spec.SecretRef.Name == name
	}) {
		return nil
	}
	err = changePermitted(ctx, hub, namespace, false, func(names []string) []string {
		return slices.DeleteFunc(names, func(n string) bool { return n == name })
	})
	if err != nil {
		return fmt.Errorf("revoking the right of Refract to read secret %s/%s: %w", namespace, name, err)
	}
	return nil
}

// changePermitted changes the names in the Role, and repeats the change after a conflict with another writer. If create
// is set, it creates a missing Role.
func changePermitted(ctx context.Context, hub client.Client, namespace string, create bool, change func(names []string) []string) error {
	raced := func(err error) bool {
		return apierrors.IsConflict(err) || create && (apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err))
	}
	often := wait.Backoff{Steps: 20, Duration: 10 * time.Millisecond, Factor: 1.3, Jitter: 0.5}
	return retry.OnError(often, raced, func() error {
		role := &rbacv1.Role{ObjectMeta: permitMeta(namespace)}
		err := hub.Get(ctx, client.ObjectKeyFromObject(role), role)
		missing := apierrors.IsNotFound(err)
		switch {
		case missing && !create:
			return nil
		case err != nil && !missing:
			return err
		}
		var names []string
		for i := range role.Rules {
			names = append(names, role.Rules[i].ResourceNames...)
		}
		names = change(names)
		slices.Sort(names)
		rules := permitRules(slices.Compact(names))
		switch {
		case missing:
			role.Rules = rules
			return hub.Create(ctx, role)
		case equality.Semantic.DeepEqual(role.Rules, rules):
			return nil
		default:
			role.Rules = rules
			return hub.Update(ctx, role)
		}
	})
}

func permitMeta(namespace string) metav1.ObjectMeta {
	labels := map[string]string{"app.kubernetes.io/name": "refract", "app.kubernetes.io/part-of": "refract"}
	return metav1.ObjectMeta{Namespace: namespace, Name: PermitRole, Labels: labels}
}

// permitRules returns the rules of the Role. Without names it returns no rule, because a rule without names covers all
// Secrets.
func permitRules(names []string) []rbacv1.PolicyRule {
	if len(names) == 0 {
		return nil
	}
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: names, Verbs: permitVerbs}}
}
