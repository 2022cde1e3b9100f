/* JSON and base64, as far as the control protocol needs them. The parser trusts nothing and never reads beyond the
 * text. */
#include "base.h"

static const char *skip_space(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r'))
		p++;
	return p;
}

static const char *skip_string(const char *p, const char *end)
{
	for (p++; p < end && *p != '"'; p++)
		if (*p == '\\')
			p++;
	return p < end ? p + 1 : end;
}

/* skip_value returns the end of the value at p: the comma or the bracket behind it. */
static const char *skip_value(const char *p, const char *end)
{
	for (int depth = 0; p < end; p++) {
		if (*p == '"')
			p = skip_string(p, end) - 1;
		else if (*p == '{' || *p == '[')
			depth++;
		else if (depth == 0 && strchr("}],", *p))
			return p;
		else if (*p == '}' || *p == ']')
			depth--;
	}
	return end;
}

struct json json_get(struct json object, const char *key)
{
	const char *p = object.p, *end = p + object.n;
	size_t n = strlen(key);
	struct json none = {0};

	if (object.n == 0 || *p++ != '{')
		return none;
	while ((p = skip_space(p, end)) < end && *p == '"') {
		const char *name = p + 1;
		p = skip_string(p, end);
		size_t length = (size_t)(p - name) - 1;
		p = skip_space(p, end);
		if (p >= end || *p++ != ':')
			return none;
		p = skip_space(p, end);
		const char *value = p;
		p = skip_value(p, end);
		if (length == n && memcmp(name, key, n) == 0)
			return (struct json){value, (size_t)(p - value)};
		p = skip_space(p, end);
		if (p >= end || *p++ != ',')
			return none;
	}
	return none;
}

bool json_next(struct json array, struct json *item)
{
	const char *p = array.p + 1, *end = array.p + array.n;

	if (array.n == 0 || *array.p != '[')
		return false;
	if (item->n != 0) {
		p = skip_space(item->p + item->n, end);
		if (p >= end || *p++ != ',')
			return false;
	}
	p = skip_space(p, end);
	item->p = p;
	item->n = (size_t)(skip_value(p, end) - p);
	return item->n > 0;
}

bool json_number(struct json v, uint64_t *n)
{
	uint64_t x = 0;

	if (v.n == 0 || v.n > 19)
		return false;
	for (size_t i = 0; i < v.n; i++) {
		if (v.p[i] < '0' || v.p[i] > '9')
			return false;
		x = x * 10 + (uint64_t)(v.p[i] - '0');
	}
	*n = x;
	return true;
}

bool json_u32(struct json object, const char *key, uint32_t *n)
{
	uint64_t x;

	if (!json_number(json_get(object, key), &x) || x > UINT32_MAX)
		return false;
	*n = (uint32_t)x;
	return true;
}

bool json_is(struct json v, const char *word)
{
	size_t n = strlen(word);

	return v.n == n + 2 && *v.p == '"' && memcmp(v.p + 1, word, n) == 0;
}

/* json_text copies a string; an escaped character that is not ASCII becomes a question mark. */
bool json_text(struct json v, char *to, size_t room)
{
	size_t n = 0;

	if (room == 0 || v.n < 2 || *v.p != '"')
		return false;
	for (size_t i = 1; i + 1 < v.n && n + 1 < room; i++) {
		char c = v.p[i];
		if (c == '\\' && i + 2 < v.n) {
			c = v.p[++i];
			if (c == 'u') {
				char hex[5] = {0};
				for (int k = 0; k < 4 && i + 2 < v.n; k++)
					hex[k] = v.p[++i];
				long u = strtol(hex, NULL, 16);
				c = u > 0 && u < 0x80 ? (char)u : '?';
			} else if (c == 'n' || c == 't') {
				c = ' ';
			}
		}
		to[n++] = c;
	}
	to[n] = 0;
	return true;
}

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void xw_base64(const void *from, size_t n, char *to)
{
	const uint8_t *b = from;

	for (size_t i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)b[i] << 16;
		if (i + 1 < n)
			v |= (uint32_t)b[i + 1] << 8;
		if (i + 2 < n)
			v |= b[i + 2];
		*to++ = digits[v >> 18];
		*to++ = digits[v >> 12 & 63];
		*to++ = i + 1 < n ? digits[v >> 6 & 63] : '=';
		*to++ = i + 2 < n ? digits[v & 63] : '=';
	}
	*to = 0;
}

int json_base64(struct json v, uint8_t *to, int room)
{
	uint32_t bits = 0;
	int have = 0, n = 0;

	if (v.n < 2 || *v.p != '"')
		return -1;
	for (size_t i = 1; i + 1 < v.n && v.p[i] != '='; i++) {
		const char *d = memchr(digits, v.p[i], 64);
		if (!d)
			return -1;
		bits = bits << 6 | (uint32_t)(d - digits);
		have += 6;
		if (have >= 8) {
			have -= 8;
			if (n == room)
				return n;
			to[n++] = (uint8_t)(bits >> have);
		}
	}
	return n;
}
