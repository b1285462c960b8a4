package config

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// TestRules checks every rule of every role for rights that no role may have. test/adversary asks an authorizer for the
// combined effect of the rules.
func TestRules(t *testing.T) {
	reads, mighty := []string{"get", "list", "watch"}, []string{"*", "impersonate", "escalate", "bind", "approve", "sign"}
	forbidden := func(file string, r *rbacv1.PolicyRule) string {
		writes := slices.ContainsFunc(r.Verbs, func(v string) bool { return !slices.Contains(reads, v) })
		gets := writes || slices.Contains(r.Verbs, "get")
		touches := func(resources ...string) bool {
			return slices.ContainsFunc(r.Resources, func(is string) bool { return slices.Contains(resources, is) })
		}
		switch {
		case slices.Equal(r.APIGroups, []string{"refract.dev"}) && slices.Contains(r.Verbs, "approve") && !touches("*"):
			return "" // The verb on a rollout policy is unrelated to certificates.
		case slices.ContainsFunc(r.Verbs, func(v string) bool { return slices.Contains(mighty, v) }):
			return "such a verb is as good as cluster-admin"
		case touches("*") && slices.Contains(r.APIGroups, "*") && gets:
			return "a star stands for nodes/proxy and pods/exec, too, which a get reaches: list and watch are enough"
		case touches("*") && writes:
			return "a star stands for the status as well, and for what comes with a later version"
		case touches("serviceaccounts/token") && slices.Equal(r.ResourceNames, []string{"refract-member"}) && file == "rbac/member.yaml":
			return "" // Its own account.
		case touches("nodes/proxy", "pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy", "serviceaccounts/token", "pods/ephemeralcontainers"):
			return "that is a way into what runs"
		case !writes || len(r.ResourceNames) > 0:
			return ""
		case touches("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings"):
			return "who writes one of any name decides about all that is written: name those that are ours"
		case touches("customresourcedefinitions") && file != "rbac/conversion/conversion.yaml": // Policies name the definitions to convert.
			return "definitions of any name are everybody's: name those that are ours"
		}
		return ""
	}
	check := func(file, name string, rules []rbacv1.PolicyRule) {
		for i := range rules {
			if reason := forbidden(file, &rules[i]); reason != "" {
				t.Errorf("%s: %s: rule %d %+v: %s", file, name, i, rules[i], reason)
			}
		}
	}
	roles := 0
	documents(t, "rbac", "ClusterRole", func(file string, r *rbacv1.ClusterRole) {
		roles++
		check(file, r.Name, r.Rules)
	})
	documents(t, "rbac", "Role", func(file string, r *rbacv1.Role) {
		roles++
		check(file, r.Name, r.Rules)
	})
	if roles < 10 {
		t.Errorf("got %d roles: they are not where this looks for them", roles)
	}
}
