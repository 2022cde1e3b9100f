/* httpserver ADDRESS PORT BYTES answers one HTTP request with a repetition of the bytes 0 to 250. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void send_all(int s, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t sent = send(s, p, n, 0);
		if (sent <= 0)
			fail("send");
		p += sent;
		n -= (size_t)sent;
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	size_t n = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	char head[256], *body = malloc(n);
	int l = socket(AF_INET, SOCK_STREAM, 0), s;

	if (argc != 4 || !body || inet_pton(AF_INET, argv[1], &a.sin_addr) != 1)
		return 2;
	a.sin_port = htons((uint16_t)atoi(argv[2]));
	for (size_t i = 0; i < n; i++)
		body[i] = (char)(i % 251);
	if (l < 0 || bind(l, (void *)&a, sizeof a) != 0 || listen(l, 1) != 0)
		fail("listen");
	if ((s = accept(l, NULL, NULL)) < 0 || recv(s, head, sizeof head, 0) <= 0)
		fail("accept");
	send_all(s, head, (size_t)snprintf(head, sizeof head, "HTTP/1.0 200 OK\r\nContent-Length: %zu\r\n\r\n", n));
	send_all(s, body, n);
	shutdown(s, SHUT_RDWR);
	close(s);
	close(l);
	puts("all is well");
	return 0;
}
