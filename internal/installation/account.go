package installation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// MemberAccount is the name of Refract's ServiceAccount on a member, and of its roles.
const MemberAccount = "refract-member"

// TokenLife is the requested lifetime of a token; the API server may grant less. Refract renews a token after two
// thirds of its lifetime.
const TokenLife = 90 * 24 * time.Hour

// Membership identifies a member in the fleet of a hub.
type Membership struct {
	Hub  types.UID
	Name string // Name of the FederatedCluster.
}

func (m Membership) String() string { return string(m.Hub) + "/" + m.Name }

// hubsAnnotation is the annotation of an account with its memberships, separated by commas. Accounts that users have
// created do not have it, and Refract does not delete such accounts.
const hubsAnnotation = refractv1alpha1.Prefix + "hubs"

// ErrRoleShared is returned if the rules of a role cannot be changed, because the role is also for other memberships.
var ErrRoleShared = errors.New("is in use by other memberships")

// roleThere returns the account's role; nil if it does not exist.
func roleThere(ctx context.Context, c client.Reader) (*rbacv1.ClusterRole, error) {
	role := &rbacv1.ClusterRole{}
	switch err := c.Get(ctx, client.ObjectKey{Name: MemberAccount}, role); {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // A missing role is no error.
	case err != nil:
		return nil, fmt.Errorf("reading clusterrole %s: %w", MemberAccount, err)
	}
	return role, nil
}

// roleToKeep returns the account's existing role; nil if a new one must be created. If another process is about to
// delete the role (see [dismissed]), a new account must not use it, because the garbage collector would delete the
// account together with this role. roleToKeep then deletes the role itself, and returns nil.
func roleToKeep(ctx context.Context, c client.Client, account *corev1.ServiceAccount) (*rbacv1.ClusterRole, error) {
	role, err := roleThere(ctx, c)
	if role == nil || err != nil || !dismissed(account) {
		return role, err
	}
	if err := c.Delete(ctx, role, client.Preconditions{UID: &role.UID}); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("deleting clusterrole %s, which no membership needs any more: %w", MemberAccount, err)
	}
	return nil, nil //nolint:nilnil // A missing role is no error.
}

// Admit creates Refract's account on a member, and returns a token for it. If rules is nil, the account gets the rules
// of the existing role, or else those of the manifest. Otherwise it gets the given rules and those in needed.
//
// The client must have the permissions of the user, because RBAC lets users grant only permissions that they have. The
// role owns all other objects, so its deletion deletes them, too. Admit calls writes before the first write.
func Admit(ctx context.Context, c client.Client, of Membership, rules []rbacv1.PolicyRule, writes func()) (token string, err error) {
	text, err := MemberManifest()
	if err != nil {
		return "", err
	}
	objects, err := parse(text)
	if err != nil {
		return "", err
	}
	if rules != nil {
		if err := narrow(objects, slices.Concat(rules, needed)); err != nil {
			return "", err
		}
	}
	account, all, err := membershipsOf(ctx, c)
	if err != nil {
		return "", err
	}
	there, err := roleToKeep(ctx, c, account)
	if err != nil {
		return "", err
	}
	if !slices.Contains(all, of.String()) {
		all = append(all, of.String())
	}
	if there != nil && rules != nil && (len(all) > 1 || all[0] != of.String()) {
		return "", fmt.Errorf("clusterrole %s %w: another role would change their rights, too", MemberAccount, ErrRoleShared)
	}
	writes()
	var owner []metav1.OwnerReference
	// The namespace and the role are written first, because the other objects need the UID of the role, which owns
	// them.
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	for _, o := range objects {
		switch o.GetKind() {
		case "Namespace", "ClusterRole":
		default:
			o.SetOwnerReferences(owner)
		}
		if o.GetKind() == "ServiceAccount" {
			o.SetAnnotations(map[string]string{hubsAnnotation: strings.Join(all, ",")})
		}
		if o.GetKind() == "ClusterRole" && there != nil && rules == nil {
			o.SetUID(there.UID) // An existing role is not written, so changes of its rules by users remain.
		} else if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(FieldManager), client.ForceOwnership); err != nil {
			return "", fmt.Errorf("applying %s: %w", Describe(o), err)
		}
		if o.GetKind() == "ClusterRole" {
			owner = []metav1.OwnerReference{{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: o.GetName(), UID: o.GetUID()}}
		}
	}
	account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: corev1alpha1.SystemNamespace, Name: MemberAccount}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(TokenLife / time.Second))}}
	if err := c.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("requesting a token of serviceaccount %s/%s: %w", account.Namespace, account.Name, err)
	}
	return request.Status.Token, nil
}

// narrow replaces the rules of the ClusterRole in objects.
func narrow(objects []*unstructured.Unstructured, rules []rbacv1.PolicyRule) error {
	for _, o := range objects {
		if o.GetKind() != "ClusterRole" {
			continue
		}
		role := &rbacv1.ClusterRole{Rules: rules}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(role)
		if err != nil {
			return err
		}
		o.Object["rules"] = fields["rules"]
	}
	return nil
}

// rank returns the position of an object in the order of writes.
func rank(o *unstructured.Unstructured) int {
	switch o.GetKind() {
	case "Namespace":
		return 0
	case "ClusterRole":
		return 1
	default:
		return 2
	}
}

// needed has the permissions that Refract needs on every member: to check the readiness and identity of the cluster, to
// create namespaces for copies, and to delete its own account.
var needed = []rbacv1.PolicyRule{
	{NonResourceURLs: []string{"/readyz"}, Verbs: []string{"get"}},
	{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch", "create"}},
	{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{MemberAccount}, Verbs: []string{"delete"}},
	{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{MemberAccount}, Verbs: []string{"get", "patch"}},
}

// RulesOf returns the rules of a ClusterRole that was decoded from a file. It returns an error for other objects.
func RulesOf(object map[string]any) ([]rbacv1.PolicyRule, error) {
	role := &rbacv1.ClusterRole{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, role, true)
	switch {
	case role.Kind != "ClusterRole":
		return nil, errors.Join(fmt.Errorf("want a ClusterRole, got %q", role.Kind), err)
	case err != nil:
		return nil, fmt.Errorf("reading ClusterRole %s: %w", role.Name, err)
	case len(role.Rules) == 0:
		return nil, errors.New("want a ClusterRole with rules, got none")
	}
	return role.Rules, nil
}

// membershipsOf returns the account and its memberships. The account is nil if it does not exist.
func membershipsOf(ctx context.Context, c client.Reader) (*corev1.ServiceAccount, []string, error) {
	account := &corev1.ServiceAccount{}
	key := client.ObjectKey{Namespace: corev1alpha1.SystemNamespace, Name: MemberAccount}
	if err := c.Get(ctx, key, account); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("reading serviceaccount %s: %w", key, err)
	}
	return account, slices.DeleteFunc(strings.Split(account.Annotations[hubsAnnotation], ","), func(s string) bool { return s == "" }), nil
}

// dismissed reports whether [Dismiss] has removed the last membership of the account, and is about to delete the role.
func dismissed(account *corev1.ServiceAccount) bool {
	if account == nil {
		return false
	}
	memberships, made := account.Annotations[hubsAnnotation]
	return made && memberships == ""
}

// Rename replaces one membership of the account by another. If the account does not have the first one, Rename does
// nothing. The client may use the account itself.
func Rename(ctx context.Context, c client.Client, from, to Membership) error {
	_, all, err := membershipsOf(ctx, c)
	at := slices.Index(all, from.String())
	if err != nil || at < 0 {
		return err
	}
	all[at] = to.String()
	slices.Sort(all)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: corev1alpha1.SystemNamespace, Name: MemberAccount}}
	hubs := strings.Join(slices.Compact(all), ",")
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, hubsAnnotation, hubs))
	if err := c.Patch(ctx, account, patch, client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("changing serviceaccount %s/%s: %w", account.Namespace, account.Name, err)
	}
	return nil
}

// Undo is like [Dismiss], for an [Admit] that may have failed before its end. The error names the object that remains.
func Undo(ctx context.Context, c client.Client, of Membership) error {
	if gone, err := Dismiss(ctx, c, of); gone || err != nil {
		return err
	}
	account, _, err := membershipsOf(ctx, c)
	if err != nil || account != nil {
		return err // The account is needed for other memberships, or belongs to the user.
	}
	// There is a role without an account. Another process may be about to create the account, so the role is not
	// deleted.
	role, err := roleThere(ctx, c)
	if err != nil || role == nil {
		return err
	}
	return fmt.Errorf("clusterrole %s exists without an account", role.Name)
}

// Dismiss deletes the objects that [Admit] has created on a member, and reports whether it has done so. They remain if
// a user has created the account, or if another membership needs it. The client may use the account itself.
//
// Dismiss first removes the membership, with a write that fails if the account has changed since the read. After the
// last membership is removed, [Admit] creates a new role. So Dismiss can safely delete the old role by its UID.
func Dismiss(ctx context.Context, c client.Client, of Membership) (gone bool, err error) {
	var account *corev1.ServiceAccount
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		var all []string
		if account, all, err = membershipsOf(ctx, c); err != nil || !slices.Contains(all, of.String()) {
			return err
		}
		before := account.DeepCopy()
		account.Annotations[hubsAnnotation] = strings.Join(slices.DeleteFunc(all, func(m string) bool { return m == of.String() }), ",")
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		return c.Patch(ctx, account, patch, client.FieldOwner(FieldManager))
	})
	if err != nil || !dismissed(account) {
		return false, client.IgnoreNotFound(err)
	}
	at := slices.IndexFunc(account.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "ClusterRole" && o.Name == MemberAccount })
	if at < 0 {
		return false, fmt.Errorf("serviceaccount %s/%s has no clusterrole as owner: delete clusterrole %s on the cluster by hand",
			account.Namespace, account.Name, MemberAccount)
	}
	// The role owns all other objects, so the garbage collector deletes them.
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: MemberAccount}}
	switch err := c.Delete(ctx, role, client.Preconditions{UID: &account.OwnerReferences[at].UID}); {
	case apierrors.IsConflict(err):
		return false, nil // In the meantime another membership has created a new role.
	case err != nil:
		return false, client.IgnoreNotFound(err)
	}
	return true, nil
}
