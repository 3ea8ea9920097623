"""A small application in Django: its URLs and middleware, which Django finds by the name of this module."""

from typing import Any

from django.http import HttpResponse, JsonResponse
from django.urls import path

from fencehold import StaleFence
from fencehold.guards.http_problems import CONTENT_TYPE, stale


def debit(request: Any) -> JsonResponse:
    offer = request.scope["fencehold.offer"]
    return JsonResponse({"name": offer.name, "fence": offer.fence})


def overtaken(request: Any) -> HttpResponse:
    offer = request.scope["fencehold.offer"]
    raise StaleFence(name=offer.name, fence=offer.fence, mark=offer.fence + 1)


class StaleMiddleware:
    """Django makes a 500 of what a view raises before anybody outside sees it; so this is said inside."""

    def __init__(self, get_response: Any) -> None:
        self._get_response = get_response

    def __call__(self, request: Any) -> HttpResponse:
        answer: HttpResponse = self._get_response(request)
        return answer

    def process_exception(self, request: Any, error: Exception) -> HttpResponse | None:
        if not isinstance(error, StaleFence):
            return None
        problem = stale(error)
        headers = {"cache-control": "no-store"}
        return HttpResponse(problem.body, status=problem.status, content_type=CONTENT_TYPE, headers=headers)


urlpatterns = [path("debit", debit), path("overtaken", overtaken)]
