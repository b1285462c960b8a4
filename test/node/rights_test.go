package node

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// request is a request of an account of Refract in the audit log of the API server.
type request struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Group       string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	RequestURI     string `json:"requestURI"`
	ResponseStatus struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

// decision is the audit annotation with the result of the authorization. terminating is the end of the message when a
// request would create an object in a terminating namespace; such a request is authorized. Source:
// https://kubernetes.io/docs/reference/labels-annotations-taints/audit-annotations/
const decision, terminating = "authorization.k8s.io/decision", "because it is being terminated"

// accounts is the prefix of the user names of Refract's service accounts.
const accounts = "system:serviceaccount:" + system + ":"

// resource returns the resource as in a rule: with the subresource after a slash.
func (r *request) resource() string {
	if r.ObjectRef.Subresource == "" {
		return r.ObjectRef.Resource
	}
	return r.ObjectRef.Resource + "/" + r.ObjectRef.Subresource
}

// refused reports whether the API server rejected the request because of a missing right. It does not count Events in a
// terminating namespace.
func (r *request) refused() bool {
	switch r.ResponseStatus.Code {
	case http.StatusUnauthorized:
		return true
	case http.StatusForbidden:
		return r.Annotations[decision] != "allow" || !strings.HasSuffix(r.ResponseStatus.Message, terminating)
	}
	return false
}

// right is a right that a role grants to an account: one verb on one resource, for one name if the rule has names.
type right struct {
	account, verb, group, resource, name string
	namespace                            string // Empty for all namespaces.
}

func (r right) String() string {
	return strings.TrimSuffix(fmt.Sprintf("%s: %s %s.%s %s", r.account, r.verb, r.resource, r.group, r.name), " ")
}

// allows reports whether a request used this right. A server-side apply of a missing object also needs "create".
func (r right) allows(q *request) bool {
	star := func(want, got string) bool { return want == "*" || want == got }
	verb := r.verb == q.Verb || (r.verb == "create" && q.Verb == "patch" && q.ResponseStatus.Code == http.StatusCreated)
	return verb && accounts+r.account == q.User.Username && star(r.group, q.ObjectRef.Group) && star(r.resource, q.resource()) &&
		(r.name == "" || r.name == q.ObjectRef.Name) && (r.namespace == "" || r.namespace == q.ObjectRef.Namespace)
}

// unused returns the reasons in [left] by right, and whether the tests may use the right.
func unused() (reasons map[string]string, maybe map[string]bool) {
	reasons, maybe = map[string]string{}, map[string]bool{}
	for _, group := range left {
		for _, r := range group.rights {
			reasons[r], maybe[r] = group.reason, group.maybe
		}
	}
	return reasons, maybe
}

// rights tests that the API server forbade no request of Refract during the whole run, and that each of Refract's
// rights was used or has a reason in [left].
func rights(t *testing.T) {
	t.Helper()
	path, err := node.Env.View.AuditLog("hub")
	if err != nil {
		t.Fatal(err)
	}
	all := requestsIn(t, path)
	if len(all) == 0 {
		t.Fatal("the audit log has no request of Refract")
	}
	forbidden := 0
	for i := range all {
		if q := &all[i]; q.refused() {
			forbidden++
			t.Errorf("%s: %s %s: %d %s", q.User.Username, q.Verb, q.RequestURI, q.ResponseStatus.Code, q.ResponseStatus.Message)
		}
	}
	given := map[string]bool{} // Whether the right was used, by right.
	for _, r := range granted(t) {
		given[r.String()] = given[r.String()] || slices.ContainsFunc(all, func(q request) bool { return r.allows(&q) })
	}
	reasons, maybe := unused()
	taken := 0
	for _, r := range slices.Sorted(maps.Keys(given)) {
		reason := reasons[r]
		switch {
		case given[r]:
			taken++
			if reason != "" && !maybe[r] {
				t.Errorf("%s: the right was used, although the list has a reason against its use: %s", r, reason)
			}
		case reason == "":
			t.Errorf("%s: the right was never used: add a reason to the list, or remove the right from the role", r)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(reasons)) {
		if _, ok := given[r]; !ok {
			t.Errorf("%s: no role grants the right: remove it from the list", r)
		}
	}
	t.Logf("%d requests of Refract, %d forbidden; %d rights, of which %d were used", len(all), forbidden, len(given), taken)
}

// requestsIn returns the requests of Refract's accounts in an audit log.
func requestsIn(t *testing.T, path string) []request {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []request
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil { // The API server is still writing a line without an end.
			break
		}
		var q request
		if err := json.Unmarshal(line, &q); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(q.User.Username, accounts) {
			all = append(all, q)
		}
	}
	return all
}

// granted returns the rights of all roles that are bound to accounts of Refract.
func granted(t *testing.T) []right {
	t.Helper()
	var all []right
	add := func(subjects []rbacv1.Subject, ref rbacv1.RoleRef, namespace string) {
		for _, s := range subjects {
			if s.Kind == rbacv1.ServiceAccountKind && s.Namespace == system {
				for _, rule := range rules(t, ref, namespace) {
					all = append(all, expand(rule, s.Name, namespace)...)
				}
			}
		}
	}
	whole := &rbacv1.ClusterRoleBindingList{}
	if err := api.List(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	for i := range whole.Items {
		add(whole.Items[i].Subjects, whole.Items[i].RoleRef, "")
	}
	inside := &rbacv1.RoleBindingList{}
	if err := api.List(t.Context(), inside, client.InNamespace(system)); err != nil {
		t.Fatal(err)
	}
	for i := range inside.Items {
		add(inside.Items[i].Subjects, inside.Items[i].RoleRef, system)
	}
	return all
}

func rules(t *testing.T, ref rbacv1.RoleRef, namespace string) []rbacv1.PolicyRule {
	t.Helper()
	if ref.Kind == "Role" {
		role := &rbacv1.Role{}
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: ref.Name}, role); err != nil {
			t.Fatal(err)
		}
		return role.Rules
	}
	role := &rbacv1.ClusterRole{}
	if err := api.Get(t.Context(), client.ObjectKey{Name: ref.Name}, role); err != nil {
		t.Fatal(err)
	}
	return role.Rules
}

// expand returns each right that a rule grants.
func expand(rule rbacv1.PolicyRule, account, namespace string) []right {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var all []right
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, name := range names {
				for _, verb := range rule.Verbs {
					all = append(all, right{account, verb, group, resource, name, namespace})
				}
			}
		}
	}
	return all
}
