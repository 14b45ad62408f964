package risk

// builtin are the rules of every preview. A repository can switch them off, or replace them by name.
var builtin = []Rule{
	{
		Name: "stateful-deletion", Level: High,
		Expression: `object.action in ['deleted', 'recreated'] && (` +
			`object.group == '' && object.kind in ['PersistentVolumeClaim', 'Namespace'] || ` +
			`object.group == 'apiextensions.k8s.io' && object.kind == 'CustomResourceDefinition' || ` +
			`object.group == 'apps' && object.kind == 'StatefulSet')`,
		Message: "data may be lost: this deletes an object that holds data or other objects",
	},
	{
		Name: "recreation", Level: Medium, Expression: `object.action == 'recreated'`,
		Message: "an immutable field changes: the object is deleted and created again",
	},
	{
		Name: "rbac-cluster-wide", Level: High,
		Expression:        `object.kind in ['ClusterRole', 'ClusterRoleBinding'] && object.grants.size() > 0`,
		Message:           "rights in all namespaces are added",
		MessageExpression: `'rights in all namespaces are added: ' + ` + grants,
	},
	{
		Name: "rbac-wider", Level: Medium,
		Expression: `object.kind in ['Role', 'RoleBinding'] && object.grants.size() > 0`,
		Message:    "rights are added", MessageExpression: `'rights are added: ' + ` + grants,
	},
	{
		Name: "privileged", Level: High, Expression: `object.privileges.size() > 0`,
		Message: "containers get power over their node",
		MessageExpression: `'containers get power over their node: ' + ` +
			`object.privileges.slice(0, math.least(object.privileges.size(), 5)).join(', ')`,
	},
	{
		Name: "image-downgrade", Level: Medium, Expression: `object.images.exists(i, i.downgrade)`,
		Message: "an image goes back to an older version",
		MessageExpression: `'an image goes back to an older version: ' + ` +
			`object.images.filter(i, i.downgrade).map(i, i.old + ' → ' + i.new).join(', ')`,
	},
	{
		Name: "replicas-zero", Level: Medium,
		Expression: `object.action in ['configured', 'recreated'] && object.new.?spec.?replicas.orValue(1) == 0 && ` +
			`object.old.?spec.?replicas.orValue(1) != 0`,
		Message: "all replicas are stopped",
	},
	{
		Name: "network-policy-removal", Level: High,
		Expression: `object.action == 'deleted' && object.kind == 'NetworkPolicy' && ` +
			`object.group == 'networking.k8s.io'`,
		Message: "traffic that this policy blocks will be allowed",
	},
	{
		Name: "disruption-budget-removal", Level: Medium,
		Expression: `object.action == 'deleted' && object.kind == 'PodDisruptionBudget' && object.group == 'policy'`,
		Message:    "a node drain may stop all pods of the workload at once",
	},
	{
		Name: "owner-move", Level: Medium, Expression: `object.previousOwner != ''`,
		Message:           "the object moves to another owner",
		MessageExpression: `"the object moves from '" + object.previousOwner + "' to another owner"`,
	},
	{
		Name: "unknown-fields", Level: Medium, Expression: `object.unknownFields.size() > 0`,
		Message: "the kind does not have some of the fields: they are left out",
		MessageExpression: `'the kind does not have these fields, so they are left out: ' + ` +
			`object.unknownFields.slice(0, math.least(object.unknownFields.size(), 5)).join(', ')`,
	},
	{
		Name: "large-prune", Level: High,
		Expression: `change.inventory > 0 && ` +
			`change.deleted.size() * 100 > prunePercent * change.inventory`,
		Message: "a large part of what the owner applied is deleted",
		MessageExpression: `string(change.deleted.size()) + ' of ' + string(change.inventory) + ` +
			`' objects of the owner are deleted, more than ' + string(prunePercent) + '%'`,
	},
	{
		Name: "hidden", Level: Medium, Expression: `object.action == 'hidden'`,
		Message: "the account of the preview may not see what happens to this object",
	},
}

// grants lists the first rights that a change adds.
const grants = `object.grants.slice(0, math.least(object.grants.size(), 5)).join(', ') + ` +
	`(object.grants.size() > 5 ? ', …' : '')`

// Ordinary is the rule of objects that no other rule applies to.
const Ordinary = "ordinary"
