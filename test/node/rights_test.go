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

// request is one that an account of Refract has made, as the API server's audit log has it.
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

// decision is the annotation by which an API server says whether a request was authorized, and terminating what it says to those that were
// and would put something into a namespace that is being deleted.
// Source: https://kubernetes.io/docs/reference/labels-annotations-taints/audit-annotations/
const decision, terminating = "authorization.k8s.io/decision", "because it is being terminated"

// accounts is how the names of Refract's own begin.
const accounts = "system:serviceaccount:" + system + ":"

// resource is as rules have it: with the subresource after a slash.
func (r *request) resource() string {
	if r.ObjectRef.Subresource == "" {
		return r.ObjectRef.Resource
	}
	return r.ObjectRef.Resource + "/" + r.ObjectRef.Subresource
}

// refused says whether it was for want of a right. An event about what goes with its namespace may come too late, whatever the rights.
func (r *request) refused() bool {
	switch r.ResponseStatus.Code {
	case http.StatusUnauthorized:
		return true
	case http.StatusForbidden:
		return r.Annotations[decision] != "allow" || !strings.HasSuffix(r.ResponseStatus.Message, terminating)
	}
	return false
}

// right is one that a role gives to an account: one verb on one resource, of one name if the rule has names.
type right struct {
	account, verb, group, resource, name string
	namespace                            string // Empty if it is for all of them.
}

func (r right) String() string {
	return strings.TrimSuffix(fmt.Sprintf("%s: %s %s.%s %s", r.account, r.verb, r.resource, r.group, r.name), " ")
}

// allows says whether a request took this right. A server-side apply of what is not there asks for "create" as well.
func (r right) allows(q *request) bool {
	star := func(want, got string) bool { return want == "*" || want == got }
	verb := r.verb == q.Verb || (r.verb == "create" && q.Verb == "patch" && q.ResponseStatus.Code == http.StatusCreated)
	return verb && accounts+r.account == q.User.Username && star(r.group, q.ObjectRef.Group) && star(r.resource, q.resource()) &&
		(r.name == "" || r.name == q.ObjectRef.Name) && (r.namespace == "" || r.namespace == q.ObjectRef.Namespace)
}

// unused returns the reasons of [left] by the right, and which may be taken.
func unused() (reasons map[string]string, maybe map[string]bool) {
	reasons, maybe = map[string]string{}, map[string]bool{}
	for _, group := range left {
		for _, r := range group.rights {
			reasons[r], maybe[r] = group.reason, group.maybe
		}
	}
	return reasons, maybe
}

// rights: over the whole run nothing was forbidden to Refract, and it has no right that nothing needs.
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
	given := map[string]bool{} // Whether they were taken.
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
				t.Errorf("%s: it is taken, and is said not to be: %s", r, reason)
			}
		case reason == "":
			t.Errorf("%s: it was never taken: say why it is needed, or take it out of the role", r)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(reasons)) {
		if _, ok := given[r]; !ok {
			t.Errorf("%s: no role gives it: take it out of the list", r)
		}
	}
	t.Logf("%d requests of Refract, %d forbidden; %d rights, of which %d were taken", len(all), forbidden, len(given), taken)
}

// requestsIn returns those of Refract's accounts from an audit log.
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
		if err != nil { // A line without an end is still being written.
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

// granted returns what the roles give that are bound to accounts of Refract.
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

// expand returns each right that a rule gives.
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
